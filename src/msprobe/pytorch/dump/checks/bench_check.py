"""`bench_path`: every entry is compared with the same one of an earlier dump, and the values of calls that differ are saved.

A call is a difference when it took in the same tensors as in the earlier run and gave out others: it is where the runs part, and not
merely behind that place. Another number or text among its arguments is what makes it different. For a gradient, what the forward call took
in and gave out must have been the same too. A module that holds a call which is a difference is none itself; nor is one that holds a
call which took in another parameter. Where a run has recorded no outputs, an argument that is another one is the difference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from msprobe.format import names
from msprobe.format.unread import Unread
from msprobe.log import logger
from msprobe.pytorch.dump.checks.earlier_dump import EarlierDump, EarlierStep
from msprobe.pytorch.dump.checks.entry_names import forward_of, kind_of
from msprobe.pytorch.dump.checks.held_tensors import HeldTensors, record_at
from msprobe.pytorch.dump.checks.same_records import STATISTICS, Verdict, verdict
from msprobe.pytorch.dump.checks.taken_in import Place, Taken, compare_taken, in_words, place_in_words
from msprobe.pytorch.dump.checks.unread import CheckedEncoder, UnreadPlaces, marked, marked_as_listed

_MOST_TOLD = 20
_MOST_NAMED = 1000


class BenchCheck:
    """The check of one step.

    Args:
        earlier: the dump to compare with, and the number of differences so far.
        step: the same step of it, None where it has none.
        held: holds the values of running calls.
        end: called when enough differences have been found.
        keep_output: this run records outputs (`data_mode`).
    """

    held: HeldTensors | None

    def __init__(
        self, earlier: EarlierDump, step: EarlierStep | None, held: HeldTensors, end: Callable[[], None], keep_output: bool = True
    ) -> None:
        self.held = held
        self._held = held
        self.encoder: type[CheckedEncoder] = CheckedEncoder
        self.unread_places = UnreadPlaces()
        self._earlier = earlier
        self._theirs = dict(step.data) if step is not None else {}
        self._outputs = keep_output and any("output" in entry for entry in self._theirs.values() if isinstance(entry, dict))
        """Both runs have recorded outputs; an entry without one is that of a call that gave out nothing."""
        self._unread = step.unread if step is not None else Unread({})
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
        """Modules that hold a difference, or a call that took in another parameter."""
        self._arguments: dict[str, tuple[tuple[Place, str], ...]] = {}
        """Forward calls whose arguments differ: which, and how."""
        self._by_arguments: set[str] = set()
        """Differences of which the arguments are all that was compared."""
        self._from_other_input: set[str] = set()
        """Differences of which it is not known that they took in the same."""
        self._first_inside: dict[str, tuple[str, Place]] = {}
        """Modules -> the first call inside them that took in another tensor, and as which argument."""
        self._first_parameter = ""
        self._first_parameter_in = ""
        """The API call that took it in, until the module comes to its end whose parameter it is."""
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
            places = self.unread_places.take(name)
            if not self._earlier.ended:
                theirs = self._theirs.pop(name, None)
                if self._unread and isinstance(theirs, dict):
                    theirs = marked_as_listed(name, theirs, self._unread)
                if theirs is None:
                    self.missing += 1
                elif self._is_difference(name, marked(data, places), theirs):
                    self._keep(name, data)
            self._held.forget(name)

    def _keep(self, name: str, data: dict[str, Any]) -> None:
        earlier = self._earlier
        self._held.write(name, data, "data_name")
        self.differences.append(name)
        earlier.found += 1
        self._explain_modules_around(name)
        if earlier.found <= _MOST_TOLD:
            if name in self._by_arguments:
                text = f"{in_words(name, self._arguments[name])}; what it gave out is not compared with {self._directory}"
            else:
                text = f"{self._why(name)} it gave out something else than in {self._directory}{self._hint(name)}"
            logger.warning(f"{name} is different: {text}")
        if earlier.ended:
            logger.warning(f"diff_nums: {earlier.found} differences have been found, recording ends here")
            self._end()

    def _why(self, name: str) -> str:
        if name in self._arguments:
            return f"{in_words(name, self._arguments[name])}, and"
        if (forward := forward_of(name)) in self._arguments:
            return f"of its forward call, {in_words(forward, self._arguments[forward])}, and"
        return "from what it took in, which could not be compared," if name in self._from_other_input else "from the same input"

    def _hint(self, name: str) -> str:
        """For a module: the call inside it behind which the difference lies; in front of it is a buffer, or what is not recorded."""
        if name not in self._first_inside:
            return ""
        call, place = self._first_inside[name]
        return f"; inside it {call} is the first that took in another tensor ({place_in_words(call, place)})"

    def _explain_modules_around(self, name: str) -> None:
        parent = self._parents.get(name)
        while parent is not None:
            self._explained.add(parent)
            parent = self._parents.get(parent)

    def _is_difference(self, name: str, data: dict[str, Any], theirs: Any) -> bool:
        """Compare an entry, and count what it is."""
        kind = kind_of(name)
        gave = "output" in theirs and "output" in data if isinstance(theirs, dict) else False
        raised = self._outputs and kind != names.PARAMETERS_GRAD and not gave
        if not isinstance(theirs, dict) or (kind != names.FORWARD and not self._ours_made) or raised:
            # The existing tool's gradients are those of the last node in the graph; and a call that raised gave out nothing.
            self.not_compared += 1
            return False
        if kind == names.PARAMETERS_GRAD:
            taken = Taken(Verdict.SAME, (), None, known=True)
            given = verdict(data, theirs, plain=False, statistics=self._statistics)
        else:
            taken = compare_taken(data, theirs, self._statistics)
            given = Verdict.UNKNOWN
            if gave:
                given = verdict(data["output"], theirs["output"], plain=True, statistics=self._statistics)
        if taken.arguments and taken.tensors is not Verdict.OTHER:
            self._arguments[name] = taken.arguments
        by_arguments = not gave and name in self._arguments
        if by_arguments or Verdict.OTHER in (taken.tensors, given):
            self._parted.add(name)
            if taken.tensors is Verdict.OTHER and kind == names.FORWARD:
                self._look_for_parameter(name, data, theirs)
                self._note_inside(name, taken.other)
            if name in self._explained:  # a backward entry's parent is not known before it ends
                self._explain_modules_around(name)
            if taken.tensors is Verdict.OTHER or name in self._explained or self._is_behind(name, kind):
                self.behind += 1
                self._first_behind = self._first_behind or name
                return False
            if by_arguments:
                self._by_arguments.add(name)
            if taken.tensors is Verdict.UNKNOWN or not taken.known:
                self._from_other_input.add(name)
            return True
        if Verdict.UNKNOWN in (taken.tensors, given):
            self.not_compared += 1
        else:
            self.same += 1
        return False

    def _look_for_parameter(self, name: str, data: dict[str, Any], theirs: dict[str, Any]) -> None:
        """What a call took in is different: where that is a parameter, the modules around the call are not to blame."""
        found = self._other_parameter(name, data, theirs)
        if found is None:
            return
        self._explain_modules_around(name)
        # Behind a difference parameters are others because they were trained by it. A module ends after the calls inside it, and has
        # the parameter's own name.
        if not self.differences and (not self._first_parameter or ("parameters" in data and self._holds(name, self._first_parameter_in))):
            self._first_parameter, self._first_parameter_in = f"{name} {found}", "" if "parameters" in data else name

    def _note_inside(self, name: str, other: Place | None) -> None:
        parent = self._parents.get(name) if other is not None else None
        while parent is not None and other is not None and parent not in self._first_inside:
            self._first_inside[parent] = name, other
            parent = self._parents.get(parent)

    def _other_parameter(self, name: str, data: dict[str, Any], theirs: dict[str, Any]) -> str | None:
        own, before = data.get("parameters"), theirs.get("parameters")
        if isinstance(own, dict) and isinstance(before, dict):
            for key in own | before:
                if self._differs(own.get(key), before.get(key)):
                    return str(key)
        for role, path in self._held.parameters(name):
            ours, other = record_at(data, role, path), record_at(theirs, role, path)
            if role != "parameters" and ours is not None and other is not None and self._differs(ours, other):
                return ".".join((role, *path))
        return None

    def _differs(self, ours: Any, theirs: Any) -> bool:
        return verdict(ours, theirs, plain=False, statistics=self._statistics) is Verdict.OTHER

    def _holds(self, module: str, name: str) -> bool:
        """Whether a call ran inside a module."""
        parent = self._parents.get(name)
        while parent is not None and parent != module:
            parent = self._parents.get(parent)
        return parent is not None

    def _is_behind(self, name: str, kind: str) -> bool:
        """Whether what this gradient is computed from differed already, beside what its entry shows."""
        if kind == names.BACKWARD:
            forward = forward_of(name)
            return forward in self._parted or forward in self._explained
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
        parameter = [f"the first parameter that differs: {self._first_parameter}"] if self._first_parameter else []
        return "; ".join(
            [f"differences from bench_path: {len(self.differences)}", *(f"{text}: {count}" for text, count in counts if count), *parameter]
        )

    def facts(self) -> dict[str, Any]:
        """See `Check.facts`."""
        return {
            "compared_with": self._directory or None,
            "differences": self.differences[:_MOST_NAMED],
            "first_other_parameter": self._first_parameter or None,
            "compared": {"same": self.same, "behind": self.behind, "missing": self.missing, "not_comparable": self.not_compared},
        }
