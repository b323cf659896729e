from collections.abc import Sequence
from typing import Any

def carry_out(directory: bytes, operations: Sequence[tuple[Any, ...]], /) -> list[int]: ...
