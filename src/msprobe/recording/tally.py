"""The numbers of one step, for its closing line and for meta.json."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """What the closing line of a step says.

    Attributes:
        tensors, calls, apis: recorded ones.
        spent: seconds that were added.
        lost: of what belongs on the disk, how much was not recorded or not written; known when the step is over.
        modules: prefixes of the modules (cells) of which a call was recorded.
        modules_hooked: how many were watched.
        modules_skipped: how many could not be watched.
    """

    tensors: int = 0
    calls: int = 0
    apis: int = 0
    spent: float = 0.0
    lost: int = 0
    modules: set[str] = field(default_factory=set)
    modules_hooked: int = 0
    modules_skipped: int = 0
