"""`bench_path`: every entry is compared with the same one of an earlier dump, and the values of calls that differ are saved.

A call is a difference when it took in the same tensors as in the earlier run and gave out others: it is where the runs part, and not
merely behind that place. For a gradient, what the forward call took in and gave out must have been the same too. A module that holds a
call which is a difference is none itself.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from msprobe.format import names
from msprobe.log import logger
from msprobe.pytorch.dump.checks.earlier_dump import EarlierDump, EarlierStep
from msprobe.pytorch.dump.checks.held_tensors import HeldTensors
from msprobe.pytorch.dump.checks.same_records import STATISTICS, Verdict, together, verdict

_TAKEN_IN = ("input_args", "input_kwargs", "input", "parameters")
_MOST_TOLD = 20
_MOST_NAMED = 1000


class BenchCheck:
    """The check of one step.

    Args:
        earlier: the dump to compare with, and the number of differences so far.
        step: the same step of it, None where it has none.
        held: holds the values of running calls.
        end: called when enough differences have been found.
    """

    held: HeldTensors | None

    def __init__(self, earlier: EarlierDump, step: EarlierStep | None, held: HeldTensors, end: Callable[[], None]) -> None:
        self.held = held
        self._held = held
        self._earlier = earlier
        self._theirs = dict(step.data) if step is not None else {}
        self._ours_made = step is not None and step.ours
        # The existing tool takes means and norms in the tensor's own precision.
        self._statistics = STATISTICS if self._ours_made else ("Max", "Min")
        self._directory = str(step.directory) if step is not None else ""
        self._end = end
        self._lock = threading.Lock()
        self._parents: dict[str, str | None] = {}
        self._parted: set[str] = set()
        """Entries that took in or gave out something else than in the earlier run."""
        self._explained: set[str] = set()
        """Modules that hold a difference."""
        self.same = self.behind = self.missing = self.not_compared = 0
        self.differences: list[str] = []
        self._first_behind = ""

    def saves(self, name: str) -> bool:
        """See `Check.saves`."""
        return name in self._theirs and not self._earlier.ended

    def called(self, name: str, parent: str | None) -> None:
        """See `Check.called`."""
        if parent is not None:
            self._parents[name] = parent

    def begins(self, name: str, data: dict[str, Any]) -> None:
        """See `Check.begins`."""

    def ends(self, name: str, data: dict[str, Any]) -> None:
        """See `Check.ends`."""
        with self._lock:
            if not self._earlier.ended:
                theirs = self._theirs.pop(name, None)
                if theirs is None:
                    self.missing += 1
                elif self._is_difference(name, data, theirs):
                    self._keep(name, data)
            self._held.forget(name)

    def _keep(self, name: str, data: dict[str, Any]) -> None:
        earlier = self._earlier
        self._held.write(name, data, "data_name")
        self.differences.append(name)
        earlier.found += 1
        self._explain_modules_around(name)
        if earlier.found <= _MOST_TOLD:
            logger.warning(f"{name} is different: from the same input it gave out something else than in {self._directory}")
        if earlier.ended:
            logger.warning(f"diff_nums: {earlier.found} differences have been found, recording ends here")
            self._end()

    def _explain_modules_around(self, name: str) -> None:
        parent = self._parents.get(name)
        while parent is not None:
            self._explained.add(parent)
            parent = self._parents.get(parent)

    def _is_difference(self, name: str, data: dict[str, Any], theirs: Any) -> bool:
        """Compare an entry, and count what it is."""
        kind = _kind(name)
        if not isinstance(theirs, dict) or (kind != names.FORWARD and not self._ours_made) or ("output" in theirs) != ("output" in data):
            # The existing tool's gradients are those of the last node in the graph; and a call that raised gave out nothing.
            self.not_compared += 1
            return False
        taken = Verdict.SAME
        if kind == names.PARAMETERS_GRAD:
            given = verdict(data, theirs, plain=False, statistics=self._statistics)
        else:
            taken = together(self._side(key, data, theirs, plain=False) for key in _TAKEN_IN if key in data and key in theirs)
            given = self._side("output", data, theirs, plain=True)
        parted = Verdict.OTHER in (taken, given)
        if parted:
            self._parted.add(name)
            if name in self._explained:  # a backward entry's parent is not known before it ends
                self._explain_modules_around(name)
            if taken is Verdict.OTHER or name in self._explained or self._is_behind(name, kind):
                self.behind += 1
                self._first_behind = self._first_behind or name
                return False
            return True
        if Verdict.UNKNOWN in (taken, given):
            self.not_compared += 1
        else:
            self.same += 1
        return False

    def _side(self, key: str, data: dict[str, Any], theirs: dict[str, Any], plain: bool) -> Verdict:
        return verdict(data.get(key), theirs.get(key), plain=plain, statistics=self._statistics)

    def _is_behind(self, name: str, kind: str) -> bool:
        """Whether what this gradient is computed from differed already, beside what its entry shows."""
        if kind == names.BACKWARD:
            return _forward_of(name) in self._parted
        return kind == names.PARAMETERS_GRAD and len(self._parted) > 1  # nothing says which calls they come from

    def summary(self) -> str:
        """See `Check.summary`."""
        if not self._directory:
            return "not compared: bench_path has no such step"
        only_there = 0 if self._earlier.ended else len(self._theirs)
        counts = (
            ("the same", self.same),
            (f"behind a difference or from other input (first: {self._first_behind})", self.behind),
            ("not in it", self.missing),
            ("only in it", only_there),
            ("not comparable", self.not_compared),
        )
        return "; ".join(
            [f"differences from bench_path: {len(self.differences)}", *(f"{text}: {count}" for text, count in counts if count)]
        )

    def facts(self) -> dict[str, Any]:
        """See `Check.facts`."""
        return {
            "compared_with": self._directory or None,
            "differences": self.differences[:_MOST_NAMED],
            "compared": {"same": self.same, "behind": self.behind, "missing": self.missing, "not_comparable": self.not_compared},
        }


def _kind(name: str) -> str:
    parsed = names.parse(name)
    return names.FORWARD if parsed is None else parsed.direction


def _forward_of(name: str) -> str:
    """`X.0.backward.pass1` -> `X.0.forward`; `Module.a.B.backward.0` -> `Module.a.B.forward.0`."""
    parsed = names.parse(name)
    if isinstance(parsed, names.ApiName | names.ModuleName):
        parsed = dataclasses.replace(parsed, direction=names.FORWARD, extra_pass=0)
    return str(parsed)
