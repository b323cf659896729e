from collections.abc import Callable
from typing import Any

class Entry:
    name: str
    data: dict[str, Any]
    text: bytes
    done: bool
    ordinary: bool
    def __new__(cls, name: str, data: dict[str, Any], done: bool) -> Entry: ...

def unflushed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any: ...
def encode_entries(entries: list[Entry], dumps: Callable[..., bytes], options: int, head: int, tail: int, /) -> None: ...
