"""What `msprobe isolate` and the process that it starts tell each other: one file with the orders, and lines about what was seen."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from msprobe.errors import DumpFormatError
from msprobe.format.lines import append_line, read_lines

__all__ = ["ARRIVED", "CODE", "EVENTS", "VARIABLE", "Orders", "append_line", "label_of", "read_lines"]

VARIABLE = "MSPROBE_ISOLATE"
"""Environment variable: path of the file with the orders. The PrecisionDebugger of a process that has it does as the file says."""

ARRIVED = "arrived.jsonl"
"""In the directory of a rank: a line for every tensor that was replaced, and for every input that a call changed in place."""

EVENTS = "events.jsonl"
"""Beside the orders: how far each process came."""

CODE = "code.json"
"""In the directory of a rank: name of a module -> {"forward": `file:line` of its forward, "last": the last line of that,
"buffers": names of its buffers, "random": whether it draws random numbers}; the model itself has the name ""."""


@dataclass(frozen=True)
class Orders:
    """What a run has to do.

    Attributes:
        golden: root of the golden dump, absolute.
        work: root of the dump that the run makes, absolute.
        events: the file for events, absolute.
        step: the only step in which inputs are replaced and calls recorded.
        labels: names of the directories in the golden step: `rank0`, `proc12`.
        calls: label -> the module calls whose inputs are replaced.
        record: names of the only calls that are recorded; empty: all.
        to_the_end: the script goes on after that step.
    """

    golden: str
    work: str
    events: str
    step: int
    labels: tuple[str, ...]
    calls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    record: tuple[str, ...] = ()
    to_the_end: bool = False

    def write(self, path: Path) -> None:
        """Raises OSError."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Orders:
        """Raises OSError, or DumpFormatError for a file that is none of ours."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            calls = {label: tuple(names) for label, names in content.pop("calls").items()}
            return cls(calls=calls, record=tuple(content.pop("record")), labels=tuple(content.pop("labels")), **content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DumpFormatError(f"{os.fspath(path)}: not the orders of msprobe isolate ({error!r}); is {VARIABLE} set by hand?") from None


def label_of(rank: int | None, labels: Collection[str]) -> str | None:
    """The golden directory that belongs to a process: that of its rank, or the only one where there are no ranks; None: there is none."""
    if rank is not None:
        return f"rank{rank}" if f"rank{rank}" in labels else None
    return next((label for label in labels if label.startswith("proc")), None) if len(labels) == 1 else None
