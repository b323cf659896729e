"""From what a run says of each call to what is wrong: pure logic, no files.

Every call worked on golden inputs, so what is wrong at a call has its reason in the call itself (its code, its parameters, its arguments)
or in a call inside it; for what arrives at a call, in the code around it: in the calls that it made before, or between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from msprobe.comparison.stacks import Frame
from msprobe.format import names
from msprobe.isolation.evidence import CallFacts, Difference, Evidence

_MANY = 3
"""Modules of one class that must be wrong, and all of them, for the class to be wrong."""

Kind = Literal["module", "own code", "between", "data", "parameter", "argument", "missing", "extra"]
"""A module without calls inside; the code of a module after the calls inside it; the code between two calls; what the model is given; a
parameter; an argument that is no tensor; a call that only one run makes."""


@dataclass
class Suspect:
    """One thing that is wrong, and what follows from it.

    Attributes:
        kind: see Kind.
        call: the call that is wrong, or at which a wrong value arrives.
        owner: the call whose code is to blame, for `between` and `argument`; None: the model's own, or code outside of it.
        after: for `between`, the last call before in the same owner; None: there is none.
        differences: what differs there.
        size: number of calls inside what is to blame.
        order: when it ran.
        frame, frame_before: the lines that make `call` and `after`.
        code: `file:line` of the forward that is to blame, "" when not known.
        buffers: those of the module that is to blame; no dump holds them.
        random: that module draws random numbers.
        updated: parameters that were right at an earlier call of the step.
        clear: one of those that were joined in it is no slight difference.
        explained: calls that are wrong because of it.
        reached: calls at which wrong values arrive because of it.
        again: further calls with the same fault: of the same module, or by the same lines of code.
        ranks: where it was seen.
    """

    kind: Kind
    call: str
    differences: tuple[Difference, ...]
    size: int
    order: int
    owner: str | None = None
    after: str | None = None
    frame: Frame | None = None
    frame_before: Frame | None = None
    code: str = ""
    buffers: tuple[str, ...] = ()
    random: bool = False
    updated: bool = False
    clear: bool = False
    explained: list[str] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    ranks: list[str] = field(default_factory=list)

    @property
    def slight(self) -> bool:
        """Narrower arithmetic may give as much."""
        return bool(self.differences) and not self.clear and all(difference.slight for difference in self.differences)

    @property
    def rank_in_list(self) -> tuple[bool, bool, bool, int, int]:
        """What is clear comes first, then what is small, then what is early; what may follow from the others, and calls that only one run
        makes, come last."""
        return self.kind in ("missing", "extra"), self.updated, self.slight, self.size, self.order


@dataclass(frozen=True)
class Undecided:
    """A difference that may be due to the replacement of inputs itself.

    Attributes:
        call: where it shows.
        arrived: it is what arrives there, not what the call gives out.
        differences: what differs.
        mutators: calls that changed their input in place: they changed the copy that they were given, and nobody else saw it.
        not_given: inputs that could not be replaced.
    """

    call: str
    arrived: bool
    differences: tuple[Difference, ...]
    mutators: tuple[str, ...] = ()
    not_given: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What a run says: what is wrong, the worst first; what it cannot tell; values that could not be compared."""

    suspects: tuple[Suspect, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    unknown: tuple[str, ...] = ()


def judge(evidence: Evidence, *, whole: bool = True) -> Verdict:
    """Judges what one rank did in a run in which every input was replaced.

    Args:
        evidence: of that rank.
        whole: the run came to the end of the step; else calls that it has not made say nothing.
    """
    if not whole:
        broken_off = set(unfinished(evidence))
        calls = tuple(replace(facts, outputs=()) if facts.name in broken_off else facts for facts in evidence.calls)
        evidence = replace(evidence, calls=calls)
    return _Judge(evidence).verdict(whole)


def unfinished(evidence: Evidence) -> tuple[str, ...]:
    """The calls that gave out nothing although the golden run's did, the innermost last: where the script failed."""
    return tuple(facts.name for facts in evidence.calls if facts.outputs and all(difference.missing for difference in facts.outputs))


def over_ranks(verdicts: Sequence[tuple[str, Verdict]]) -> Verdict:
    """Joins the verdicts of the ranks, (label, verdict) each: what several ranks say is told once."""
    suspects: dict[tuple[str, str, str | None], Suspect] = {}
    undecided: dict[tuple[str, bool], Undecided] = {}
    unknown: list[str] = []
    for label, verdict in verdicts:
        for suspect in verdict.suspects:
            suspects.setdefault((suspect.kind, suspect.call, suspect.after), suspect).ranks.append(label)
        for item in verdict.undecided:
            undecided.setdefault((item.call, item.arrived), item)
        unknown += [f"{label}: {text}" if len(verdicts) > 1 else text for text in verdict.unknown]
    return Verdict(tuple(sorted(suspects.values(), key=lambda suspect: suspect.rank_in_list)), tuple(undecided.values()), tuple(unknown))


class _Judge:
    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.calls = {facts.name: facts for facts in evidence.calls}
        self.order = {facts.name: index for index, facts in enumerate(evidence.calls)}
        self.children: defaultdict[str | None, list[str]] = defaultdict(list)
        for facts in evidence.calls:
            self.children[facts.parent].append(facts.name)
        self.suspects: list[Suspect] = []
        self.undecided: list[Undecided] = []
        self.parameters: dict[str, Suspect] = {}
        self.arguments: dict[str, Suspect] = {}
        self.between: defaultdict[str | None, list[Suspect]] = defaultdict(list)
        self.right_before: set[str] = set()
        """Modules whose parameters were right at a call."""
        self.cause: dict[str, Suspect | None] = {}
        """Call with a wrong output -> the reason; None: undecided."""
        self.reached: list[tuple[str, Suspect | str]] = []
        """Call at which something wrong arrives, and the reason, or the call whose wrong output it follows from."""

    def verdict(self, whole: bool) -> Verdict:
        for facts in self.evidence.calls:
            self._parameter(facts)
            self._argument(facts)
        for facts in self.evidence.calls:
            if facts.arrived:
                self._arrived(facts)
        for facts in reversed(self.evidence.calls):  # a call begins before those inside it
            if facts.outputs:
                self._output(facts)
        for name, reason in self.reached:
            suspect = self.cause.get(reason) if isinstance(reason, str) else reason
            if suspect is not None and name != suspect.call:
                suspect.reached.append(name)
        for name in sorted(self.cause, key=self.order.__getitem__):
            suspect = self.cause[name]
            if suspect is not None and (suspect.kind == "between" or name != suspect.call):
                suspect.explained.append(name)
        if whole:
            self._one_sided()
        unknown = tuple(f"{facts.name}: {text}" for facts in self.evidence.calls for text in facts.unknown)
        return Verdict(tuple(self._merged()), tuple(self.undecided), unknown)

    # --- a call by itself -----------------------------------------------------------------------------------------------------------
    def _parameter(self, facts: CallFacts) -> None:
        if facts.parameters:
            suspect = self._suspect("parameter", facts, facts.parameters, size=len(self._inside(facts.name)))
            suspect.updated = operation(facts.name) in self.right_before
            self.parameters[facts.name] = suspect
        else:
            self.right_before.add(operation(facts.name))

    def _argument(self, facts: CallFacts) -> None:
        if all(difference.may_not_matter for difference in facts.arguments):
            return
        handed_down = self.arguments.get(facts.parent or "")
        wrong = self._wrong_before(facts)
        if handed_down is not None:
            self.arguments[facts.name] = handed_down
            self.reached.append((facts.name, handed_down))
        elif wrong:
            self.reached.append((facts.name, wrong[-1]))
        else:
            self.arguments[facts.name] = self._suspect("argument", facts, facts.arguments, size=len(self._inside(facts.parent)))

    # --- what arrives ---------------------------------------------------------------------------------------------------------------
    def _arrived(self, facts: CallFacts) -> None:
        before = self._before(facts)
        wrong = self._wrong_before(facts)
        rest: list[Difference] = []
        certain = False
        for difference in facts.arrived:
            made_by = [name for name in before if name in facts.sources.get(difference.key, ())]
            if made_by and not self.calls[made_by[-1]].outputs:
                rest.append(difference)  # it left that call right, whatever else is wrong, and nobody was to change it on its way
                certain = True
            elif wrong:
                self.reached.append((facts.name, made_by[-1] if made_by else wrong[-1]))
            else:
                rest.append(difference)
        if not rest:
            return
        around = self.calls.get(facts.parent or "")
        reason = self._reason_of(around)
        if reason is not None:
            self.reached.append((facts.name, reason))
            return
        mutators = tuple(name for sibling in before for name in (sibling, *self._inside(sibling)) if self.calls[name].mutated)
        not_given = around.given if around is not None else ()
        if not certain and (mutators or not_given):
            self.undecided.append(Undecided(facts.name, True, tuple(rest), mutators, not_given))
            return
        if self.between[facts.parent]:  # the same code goes on with what it made
            self.reached.append((facts.name, self.between[facts.parent][0]))
            return
        kind: Kind = "data" if facts.parent is None and not before else "between"
        suspect = self._suspect(kind, facts, tuple(rest), size=len(self._inside(facts.parent)))
        if before:
            suspect.after, suspect.frame_before = before[-1], self.calls[before[-1]].frame
        self.between[facts.parent].append(suspect)

    def _reason_of(self, around: CallFacts | None) -> Suspect | None:
        """Why the code of this call may compute wrong values although it is right itself."""
        if around is None:
            return None
        return self.arguments.get(around.name) or self.parameters.get(around.name) or self._does_matter(around)

    def _does_matter(self, facts: CallFacts) -> Suspect | None:
        """A tensor for None, or None for a tensor, is to blame for what is wrong in this call, if no call like it is right all the same."""
        if not facts.arguments:
            return None
        keys = {difference.key for difference in facts.arguments}
        for other in self.evidence.calls:
            alike = (
                other is not facts
                and class_of(other.name) == class_of(facts.name)
                and keys == {difference.key for difference in other.arguments}
            )
            if alike and not other.outputs and not any(self.calls[inner].arrived for inner in self._inside(other.name)):
                return None
        reason = self._reason_of(self.calls.get(facts.parent or ""))
        if reason is None:
            reason = self._suspect("argument", facts, facts.arguments, size=len(self._inside(facts.parent)))
        else:
            self.reached.append((facts.name, reason))
        self.arguments[facts.name] = reason
        return reason

    # --- what is given out ----------------------------------------------------------------------------------------------------------
    def _output(self, facts: CallFacts) -> None:
        name = facts.name
        reason = self._reason_of(facts)
        if reason is not None:
            self.cause[name] = reason
            return
        wrong = [child for child in self.children[name] if self.calls[child].outputs]
        if wrong:
            decided = [cause for child in wrong if (cause := self.cause.get(child)) is not None]
            self.cause[name] = decided[0] if decided else None
            return
        if self.between[name]:
            self.cause[name] = self.between[name][0]
            return
        mutators = tuple(child for child in self._inside(name) if self.calls[child].mutated)
        if mutators or facts.given:
            self.undecided.append(Undecided(name, False, facts.outputs, mutators, facts.given))
            self.cause[name] = None
            return
        if any(item.arrived and self.calls[item.call].parent == name for item in self.undecided):
            self.cause[name] = None
            return
        inside = self._inside(name)
        suspect = self._suspect("own code" if inside else "module", facts, facts.outputs, size=len(inside))
        suspect.owner = name
        suspect.code = self.evidence.code.get(operation(name), "")
        suspect.buffers = self.evidence.buffers.get(operation(name), ())
        suspect.random = operation(name) in self.evidence.random
        if inside:
            last = self.children[name][-1]
            suspect.after, suspect.frame_before = last, self.calls[last].frame
        self.cause[name] = suspect

    # --- calls that one side alone makes --------------------------------------------------------------------------------------------
    def _one_sided(self) -> None:
        kinds: tuple[tuple[Kind, tuple[str, ...]], ...] = (("missing", self.evidence.missing), ("extra", self.evidence.extra))
        for kind, found in kinds:
            if found:
                self.suspects.append(Suspect(kind, found[0], (), 0, 0, again=list(found[1:])))

    # --- help -----------------------------------------------------------------------------------------------------------------------
    def _suspect(self, kind: Kind, facts: CallFacts, differences: tuple[Difference, ...], size: int) -> Suspect:
        suspect = Suspect(kind, facts.name, differences, size, self.order[facts.name], facts.parent, frame=facts.frame)
        if facts.parent is not None:
            suspect.code = self.evidence.code.get(operation(facts.parent), "")
            if kind == "between":
                suspect.buffers = self.evidence.buffers.get(operation(facts.parent), ())
                suspect.random = operation(facts.parent) in self.evidence.random
        self.suspects.append(suspect)
        return suspect

    def _before(self, facts: CallFacts) -> list[str]:
        siblings = self.children[facts.parent]
        return siblings[: siblings.index(facts.name)]

    def _wrong_before(self, facts: CallFacts) -> list[str]:
        return [name for name in self._before(facts) if self.calls[name].outputs]

    def _inside(self, name: str | None) -> list[str]:
        """All calls inside a call, in the order in which they began; inside the model for None."""
        return list(self._walk(name))

    def _walk(self, name: str | None) -> Iterator[str]:
        waiting = list(reversed(self.children.get(name, ())))
        while waiting:
            child = waiting.pop()
            yield child
            waiting += reversed(self.children.get(child, ()))

    def _merged(self) -> list[Suspect]:
        """What is wrong in the same way at several calls of a module, or by the same lines of code in several, is one suspect."""
        found = _joined(
            self.suspects, lambda suspect: (suspect.kind, suspect.updated, operation(suspect.call), operation(suspect.after or ""))
        )
        whole = self._wrong_classes(found)
        return sorted(_joined(found, lambda suspect: _same_code(suspect, whole)), key=lambda suspect: suspect.rank_in_list)

    def _wrong_classes(self, suspects: Sequence[Suspect]) -> set[str]:
        """Classes of which every module is wrong: then it is the class."""
        modules: defaultdict[str, set[str]] = defaultdict(set)
        for name in self.calls:
            modules[class_of(name)].add(operation(name))
        wrong: defaultdict[str, set[str]] = defaultdict(set)
        for suspect in suspects:
            if suspect.kind == "module":
                wrong[class_of(suspect.call)].add(operation(suspect.call))
        return {name for name, found in wrong.items() if len(found) >= _MANY and found == modules[name]}


def _joined(suspects: Sequence[Suspect], key: Callable[[Suspect], Hashable | None]) -> list[Suspect]:
    """Suspects with one key become one, the earliest; None is no key."""
    first: dict[Hashable, Suspect] = {}
    left: list[Suspect] = []
    for suspect in sorted(suspects, key=lambda suspect: suspect.order):
        mark = key(suspect)
        earlier = first.setdefault(mark, suspect) if mark is not None else suspect
        if earlier is suspect:
            left.append(suspect)
            continue
        earlier.again += [suspect.call, *suspect.again]
        earlier.clear = not (earlier.slight and suspect.slight)
        earlier.explained += suspect.explained
        earlier.reached += suspect.reached
    return left


def _same_code(suspect: Suspect, wrong_classes: set[str]) -> Hashable | None:
    frame, before = suspect.frame, suspect.frame_before
    if suspect.kind == "parameter":
        return (suspect.kind, suspect.updated)
    if suspect.kind == "module":
        name = class_of(suspect.call)
        return (suspect.kind, name) if name in wrong_classes else None
    if suspect.kind in ("between", "argument", "own code") and frame is not None and suspect.owner is not None:
        at = (before.path, before.line) if before is not None else None
        keys = tuple(difference.key for difference in suspect.differences)
        return (suspect.kind, class_of(suspect.owner), at, keys, *(() if suspect.kind == "own code" else (frame.path, frame.line)))
    return None


def operation(call: str) -> str:
    """`Module.fc.Linear` of `Module.fc.Linear.forward.0`."""
    parts = names.parse(call)
    return parts.operation if parts is not None else call


def class_of(call: str) -> str:
    """`Linear` of `Module.fc.Linear.forward.0`."""
    return operation(call).rpartition(".")[2]
