"""From what a run says of each call to what is wrong: pure logic, no files.

Every call worked on golden inputs, so what is wrong at a call has its reason in the call itself (its code, its parameters, its arguments)
or in a call inside it; for what arrives at a call, in the code around it: in the calls that it made before, or between them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from msprobe.isolation.differences import Difference
from msprobe.isolation.evidence import CallFacts, Evidence
from msprobe.isolation.other_arguments import Arguments
from msprobe.isolation.suspects import Kind, Suspect, Undecided, Verdict, class_of, joined, operation, same_code, short

_MANY = 3
"""Modules of one class that must be wrong, and all of them, for the class to be wrong."""


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


class _Judge:
    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.calls = {facts.name: facts for facts in evidence.calls}
        self.order = {facts.name: index for index, facts in enumerate(evidence.calls)}
        self.children: defaultdict[str | None, list[str]] = defaultdict(list)
        for facts in evidence.calls:
            self.children[facts.parent].append(facts.name)
        self.arguments = Arguments(evidence.calls)
        self.suspects: list[Suspect] = []
        self.undecided: list[Undecided] = []
        self.parameters: dict[str, Suspect] = {}
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
        return Verdict(tuple(self._merged()), tuple(self.undecided), unknown, (*self._not_replaced(), *self.arguments.remarks()))

    # --- a call by itself -----------------------------------------------------------------------------------------------------------
    def _parameter(self, facts: CallFacts) -> None:
        if facts.parameters:
            suspect = self._suspect("parameter", facts, facts.parameters, size=len(self._inside(facts.name)))
            suspect.updated = operation(facts.name) in self.right_before
            self.parameters[facts.name] = suspect
        else:
            self.right_before.add(operation(facts.name))

    def _argument(self, facts: CallFacts) -> None:
        """Other arguments excuse nothing by themselves: they are kept in mind for what is wrong in this very module."""
        wrong = self._wrong_before(facts)
        if facts.arguments and wrong and not any(difference.alone for difference in facts.arguments):
            self.reached.append((facts.name, wrong[-1]))  # numbers that were computed from what is wrong
        elif facts.arguments:
            self.arguments.add(facts)

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
        reason = self.parameters.get(facts.parent or "")
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
        self.arguments.blame(suspect, around)
        if before:
            suspect.after, suspect.frame_before = before[-1], self.calls[before[-1]].frame
        self.between[facts.parent].append(suspect)

    # --- what is given out ----------------------------------------------------------------------------------------------------------
    def _output(self, facts: CallFacts) -> None:
        name = facts.name
        reason = self.parameters.get(name)
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
        self._look_up(suspect, operation(name))
        self.arguments.blame(suspect, facts)
        if suspect.arguments:
            suspect.kind = "argument"
        if inside:
            last = self.children[name][-1]
            suspect.after, suspect.frame_before = last, self.calls[last].frame
        self.cause[name] = suspect

    # --- calls that one side alone makes --------------------------------------------------------------------------------------------
    def _one_sided(self) -> None:
        kinds: tuple[tuple[Kind, tuple[str, ...]], ...] = (("missing", self.evidence.missing), ("extra", self.evidence.extra))
        for kind, found in kinds:
            if found:
                self.suspects.append(Suspect(kind, found[0], (), 0, 0, times=self._times(kind), again=list(found[1:])))

    def _times(self, kind: Kind) -> int:
        """How often one run makes the calls of the other, where it makes all of them equally often; else 0."""
        if self.evidence.missing and self.evidence.extra:
            return 0
        both = Counter(map(operation, self.calls))
        more = both + Counter(map(operation, self.evidence.extra if kind == "extra" else self.evidence.missing))
        ratios = {divmod(more[name], both[name]) if name in both else (0, 1) for name in more}
        times, rest = next(iter(ratios))
        return times if len(ratios) == 1 and not rest else 0

    def _not_replaced(self) -> Iterator[str]:
        without = self.evidence.not_replaced
        if without:
            calls = "1 module call" if len(without) == 1 else f"{len(without)} module calls"
            first = f", the first: {short(without[0])}" if len(without) > 1 else f": {short(without[0])}"
            yield f"no golden input was given to {calls}{first}; judged on what arrived there"

    # --- help -----------------------------------------------------------------------------------------------------------------------
    def _suspect(self, kind: Kind, facts: CallFacts, differences: tuple[Difference, ...], size: int) -> Suspect:
        suspect = Suspect(kind, facts.name, differences, size, self.order[facts.name], facts.parent, frame=facts.frame)
        if facts.parent is not None and kind == "between":
            self._look_up(suspect, operation(facts.parent))
        self.suspects.append(suspect)
        return suspect

    def _look_up(self, suspect: Suspect, module: str) -> None:
        """What is known of the module that is to blame."""
        suspect.code, suspect.code_end = self.evidence.code.get(module, ""), self.evidence.ends.get(module, 0)
        suspect.buffers = self.evidence.buffers.get(module, ())
        suspect.random = module in self.evidence.random

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
        found = joined(
            self.suspects, lambda suspect: (suspect.kind, suspect.updated, operation(suspect.call), operation(suspect.after or ""))
        )
        whole = self._wrong_classes(found)
        return sorted(joined(found, lambda suspect: same_code(suspect, whole)), key=lambda suspect: suspect.rank_in_list)

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
