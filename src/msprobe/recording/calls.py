"""What runs now in each thread: the open modules, and whether the thread is inside a recorded API."""

from __future__ import annotations

import threading
from typing import Any

from msprobe.recording.stacks import Anchor


class OpenModule:
    """A module whose forward is running."""

    __slots__ = (
        "anchor",
        "data",
        "edges",
        "entered_mode",
        "floor",
        "forward",
        "key",
        "name",
        "number",
        "ordinary",
        "parent",
        "prefix",
        "tensors",
    )

    def __init__(self, name: str, key: Any, anchor: Anchor) -> None:
        self.name = name
        """Entry name, `Module.a.Mlp.forward.0`."""
        self.key = key
        self.anchor = anchor
        """Where its frame lies on the Python stack, and how many hooked module calls were there, this one included."""
        self.data: dict[str, Any] | None = None
        self.edges: Any = None
        self.floor = 0
        self.forward = False
        self.entered_mode = False
        self.parent: str | None = None
        self.prefix = ""
        self.number = 0
        self.ordinary = False
        self.tensors = 0


class ThreadState(threading.local):
    """Each thread has its own; nothing here is shared."""

    def __init__(self) -> None:
        self.open: list[OpenModule] = []
        self.spelling: str | None = None
        self.inside = False
        self.mode: Any = None
        """The function mode that this thread has entered."""

    def parent(self) -> str | None:
        """Name of the innermost open module."""
        return self.open[-1].name if self.open else None

    def unwind(self, depth: int) -> list[OpenModule]:
        """Close the modules that an exception left without telling: those deeper than `depth` hooked calls; gives them back."""
        gone: list[OpenModule] = []
        while self.open and self.open[-1].anchor.depth > depth:
            gone.append(self.open.pop())
        return gone
