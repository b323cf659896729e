"""What a run in which nothing was replaced says of the differences that may be due to the replacement."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.isolation.evidence import CallFacts, Evidence
from msprobe.isolation.suspects import Suspect, Undecided, Verdict, over_ranks


def settle(verdict: Verdict, plain: Sequence[Evidence]) -> tuple[Verdict, list[str]]:
    """Decides what it can of `verdict.undecided`.

    Args:
        verdict: of the run in which everything was replaced.
        plain: of each rank, what the run in which nothing was replaced says.

    Returns:
        The verdict with what was confirmed among the suspects; what was cleared, one sentence each.
    """
    if not verdict.undecided:
        return verdict, []
    left: list[Undecided] = []
    confirmed: list[Suspect] = []
    notes: list[str] = []
    for item in verdict.undecided:
        found = [(evidence, facts) for evidence in plain for facts in evidence.calls if facts.name == item.call]
        keys = {difference.key for difference in item.differences}
        if found and not any(_differs(facts, item, keys) for _, facts in found):
            notes.append(f"{item.call}: {', '.join(sorted(keys))} differed only because of the replacement; in a plain run it is right")
            continue
        suspect = next((made for evidence, facts in found if (made := _confirm(evidence, facts, item, keys)) is not None), None)
        if suspect is None:
            left.append(item)
        else:
            confirmed.append(suspect)
    settled = over_ranks([("", Verdict(tuple(confirmed)))])
    for suspect in settled.suspects:
        suspect.ranks.clear()
    suspects = sorted((*verdict.suspects, *settled.suspects), key=lambda suspect: suspect.rank_in_list)
    return Verdict(tuple(suspects), tuple(left), verdict.unknown, verdict.remarks), notes


def _differs(facts: CallFacts, item: Undecided, keys: set[str]) -> bool:
    """Whether what differed in the other run differs in the plain one, too."""
    values = (*facts.given, *facts.arguments) if item.arrived else facts.outputs
    return any(difference.key in keys for difference in values)


def _confirm(evidence: Evidence, facts: CallFacts, item: Undecided, keys: set[str]) -> Suspect | None:
    """The fault, if in the plain run all that ran before within the same module is right."""
    order = [other.name for other in evidence.calls]
    before = [other for other in evidence.calls if other.parent == facts.parent and order.index(other.name) < order.index(facts.name)]
    around = next((other for other in evidence.calls if other.name == facts.parent), None)
    inside = [other for other in evidence.calls if other.parent == facts.name]
    watched = before if item.arrived else inside
    if any(other.given or other.outputs or other.parameters for other in watched):
        return None
    if item.arrived:
        if around is not None and (around.given or around.parameters):
            return None
        wrong = tuple(difference for difference in facts.given if difference.key in keys)
        suspect = Suspect("between", facts.name, wrong, len(before), order.index(facts.name), facts.parent, frame=facts.frame)
        suspect.arguments = around.arguments if around is not None else ()
        if before:
            suspect.after, suspect.frame_before = before[-1].name, before[-1].frame
        return suspect
    if facts.given or facts.parameters:
        return None
    suspect = Suspect(
        "own code" if inside else "module", facts.name, facts.outputs, len(inside), order.index(facts.name), facts.name, frame=facts.frame
    )
    if facts.arguments:
        suspect.kind, suspect.arguments = "argument", facts.arguments
    return suspect
