"""Checkpointed code runs twice: the second time it must see the inputs that it saw the first time."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from msprobe.pytorch.load.checkpoint_frames import checkpoints


@dataclass
class _Region:
    """What one checkpointed piece of code called when it ran first."""

    calls: dict[str, list[int]] = field(default_factory=dict)
    """Module -> numbers of its calls, in order; of a call that was itself a repetition, that of the call it repeats."""
    runs: dict[Any, dict[str, int]] = field(default_factory=dict)
    """Repetition -> module -> calls so far."""


class Recomputation:
    """Tells which call of a module repeats which earlier one; for the calls of one step."""

    def __init__(self) -> None:
        self._regions: WeakKeyDictionary[Any, _Region] = WeakKeyDictionary()

    def origin(self, module: str, number: int) -> int | None:
        """The number of the call that this one repeats, None if it repeats none. Every call has to come by here once.

        Args:
            module: name of the module that is being called.
            number: of the call.
        """
        opened, running = checkpoints(sys._getframe(1))
        origin = None
        if running is not None:
            region = self._regions.get(running[0])
            if region is not None:
                done = region.runs.setdefault(running[1], {})
                index = done.get(module, 0)
                done[module] = index + 1
                calls = region.calls.get(module, ())
                origin = calls[index] if index < len(calls) else None
        for key in opened:
            self._regions.setdefault(key, _Region()).calls.setdefault(module, []).append(number if origin is None else origin)
        return origin

    def waiting(self) -> dict[str, set[int]]:
        """Module -> numbers of its calls in code that can still be repeated, and never was."""
        found: dict[str, set[int]] = {}
        for region in list(self._regions.values()):
            if not region.runs:
                for module, numbers in region.calls.items():
                    found.setdefault(module, set()).update(numbers)
        return found

    def clear(self) -> None:
        """The next calls belong to another step."""
        self._regions.clear()
