from collections.abc import Mapping, Sequence
from typing import Any

def calls_of(texts: Sequence[bytes], like: Mapping[str, Any], context: tuple[Any, ...], /) -> list[Any]: ...
