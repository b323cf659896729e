"""How far the script came in a run, from the lines that its processes left."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msprobe.errors import UsageError
from msprobe.format import isolation
from msprobe.isolation.child import Ended
from msprobe.isolation.golden import Golden

_LINES = "it needs the lines `debugger = PrecisionDebugger(...)`, `debugger.start(model)`, `debugger.stop()` and `debugger.step()`"


@dataclass
class Progress:
    """What a run left.

    Attributes:
        directories: label of a golden rank -> the directory of the run's dump that belongs to it.
        whole: labels whose step was recorded to its end.
        failed: some process failed before the step was recorded.
    """

    directories: dict[str, Path] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    failed: bool = False


def progress(events: Path, golden: Golden, ended: Ended) -> Progress:
    """Reads the events of a run.

    Raises:
        UsageError: nothing was recorded although the script did not fail, or no process fits the golden dump; says why.
    """
    found = Progress()
    constructed, started, steps = False, False, set()
    labels: list[str] = []
    for event in isolation.read_lines(events):
        kind, step = event.get("event"), event.get("step")
        constructed = True
        if kind == "start":
            started = True
            steps.add(step)
        if step != golden.step:
            continue
        label = isolation.label_of(event.get("rank"), golden.ranks)
        labels.append(label or _shown(event.get("rank")))
        if label is None or kind not in ("recording", "recorded") or not isinstance(event.get("directory"), str):
            continue
        found.directories[label] = Path(event["directory"])
        if kind == "recorded" and not (event.get("at_exit") and ended.code != 0):
            found.whole.add(label)
    found.failed = ended.code != 0 and set(golden.ranks) - found.whole != set()
    if found.failed and found.directories:
        return found
    if not started:
        missing_line = "called start() of its PrecisionDebugger" if constructed else "constructed a PrecisionDebugger"
        if ended.code:
            raise UsageError(f"the script failed ({_how(ended)}) before it {missing_line}: nothing can be said of its modules")
        raise UsageError(f"the script ended ({_how(ended)}) and never {missing_line}: {_LINES}")
    if not labels:
        seen = ", ".join(str(number) for number in sorted(step for step in steps if isinstance(step, int)))
        raise UsageError(
            f"start() was called in step {seen}, and never in step {golden.step}, which the golden dump is of (the script ended with "
            f"{_how(ended)}): give another step with --step, or let the script run so far"
        )
    missing = sorted(set(golden.ranks) - set(found.directories))
    if missing and set(missing) <= set(labels):
        raise UsageError(f"start() was called in step {golden.step}, and recording did not begin; the script ended ({_how(ended)})")
    if missing:
        raise UsageError(
            f"the golden run has {', '.join(golden.ranks)} and the script ran as {', '.join(sorted(set(labels)))}: nothing belongs to "
            f"{', '.join(missing)}; run it with the same number of processes"
        )
    return found


def _shown(rank: Any) -> str:
    return "a process without rank" if rank is None else f"rank{rank}"


def _how(ended: Ended) -> str:
    return f"{ended.how}: {ended.last_words}" if ended.code and ended.last_words else ended.how
