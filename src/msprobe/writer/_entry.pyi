from typing import Any

class Entry:
    name: str
    data: dict[str, Any]
    text: str
    done: bool
    ordinary: bool
    def __new__(cls, name: str, data: dict[str, Any], done: bool) -> Entry: ...
