"""What may be wrong: suspects, what cannot be decided, and how equal ones are joined."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msprobe.comparison.stacks import Frame
from msprobe.format import names
from msprobe.isolation.differences import Difference

Kind = Literal["module", "own code", "between", "data", "parameter", "argument", "missing", "extra"]
"""A module without calls inside; the code of a module beside the calls inside it; the code between two calls; what the model is given; a
parameter; a module, by its code or by arguments that are other ones; a call that only one run makes."""


@dataclass
class Suspect:
    """One thing that is wrong, and what follows from it.

    Attributes:
        kind: see Kind.
        call: the call that is wrong, or at which a wrong value arrives.
        owner: the call whose code is to blame, for `between`; None: the model's own, or code outside of it.
        after: for `between`, the last call before in the same owner; None: there is none.
        differences: what differs there.
        size: number of calls inside what is to blame.
        order: when it ran.
        frame, frame_before: the lines that make `call` and `after`.
        code: `file:line` of the forward that is to blame, "" when not known.
        code_end: its last line, 0 when not known.
        arguments: of the module that is to blame, those that are others than in the golden run, or that one run alone passes: they may be
            the reason.
        handed_down: the outermost call around it that has such arguments of the same names, None where there is none.
        times: one run makes every call that many times as often as the other, 0 where it does not.
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
    code_end: int = 0
    arguments: tuple[Difference, ...] = ()
    handed_down: str | None = None
    times: int = 0
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
    """What a run says: what is wrong, the worst first; what it cannot tell; values that could not be compared; what else may be of use."""

    suspects: tuple[Suspect, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    unknown: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


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
    remarks = dict.fromkeys(remark for _, verdict in verdicts for remark in verdict.remarks)
    found = sorted(suspects.values(), key=lambda suspect: suspect.rank_in_list)
    return Verdict(tuple(found), tuple(undecided.values()), tuple(unknown), tuple(remarks))


def joined(suspects: Sequence[Suspect], key: Callable[[Suspect], Hashable | None]) -> list[Suspect]:
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


def same_code(suspect: Suspect, wrong_classes: set[str]) -> Hashable | None:
    """What suspects have in common that are one fault; None where that cannot be told."""
    frame, before = suspect.frame, suspect.frame_before
    if suspect.kind == "parameter":
        return (suspect.kind, suspect.updated)
    if suspect.kind == "module":
        name = class_of(suspect.call)
        return (suspect.kind, name) if name in wrong_classes else None
    if suspect.kind == "argument":
        return (suspect.kind, class_of(suspect.call), *((difference.key, difference.how) for difference in suspect.arguments))
    if suspect.kind in ("between", "own code") and frame is not None and suspect.owner is not None:
        at = (before.path, before.line) if before is not None else None
        keys = tuple(difference.key for difference in suspect.differences)
        return (suspect.kind, class_of(suspect.owner), at, keys, *(() if suspect.kind == "own code" else (frame.path, frame.line)))
    return None


def short(call: str) -> str:
    """`fc1 (Linear)` for `Module.fc1.Linear.forward.0`, with its number where it is not the module's first call."""
    parts = names.parse(call)
    if not isinstance(parts, names.ModuleName):
        return call
    number = f", call {parts.count}" if parts.count else ""
    return f"{parts.path} ({parts.class_name}{number})" if parts.path else f"{parts.class_name}{number}"


def place_of(call: str) -> tuple[str, int]:
    """Path and number of a module call: the same in two runs whose modules are of other classes."""
    parts = names.parse(call)
    return (parts.path, parts.count) if isinstance(parts, names.ModuleName) else (call, 0)


def operation(call: str) -> str:
    """`Module.fc.Linear` of `Module.fc.Linear.forward.0`."""
    parts = names.parse(call)
    return parts.operation if parts is not None else call


def class_of(call: str) -> str:
    """`Linear` of `Module.fc.Linear.forward.0`."""
    return operation(call).rpartition(".")[2]
