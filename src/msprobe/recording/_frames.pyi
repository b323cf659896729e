from collections.abc import Hashable
from types import FrameType

def walk(frame: FrameType, stop: int, above: int, depth: int, counted: tuple[int, ...], /) -> tuple[Hashable, int]: ...
