"""Whether a call took in the same tensors in two runs, and which of its other arguments were different."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msprobe.pytorch.dump.checks.argument_names import argument_name
from msprobe.pytorch.dump.checks.same_records import Verdict, is_tensor, is_value, together, verdict
from msprobe.pytorch.dump.checks.unread import Unread

_OTHERS = ("input", "parameters")
_MOST_NAMED = 3
_MOST_SHOWN = 60
Place = int | str
"""A position, or a name."""


@dataclass(frozen=True)
class Taken:
    """What two entries of one name say of what the call took in.

    Attributes:
        tensors: of the tensors that both runs passed to the same arguments, and of the module's own parameters.
        arguments: each argument that differs without a tensor being different: another number or text, or there in one run only.
        other: the first argument whose tensors differ, None where none does.
        known: both entries say all of what was taken in.
    """

    tensors: Verdict
    arguments: tuple[tuple[Place, str], ...]
    other: Place | None
    known: bool


def compare_taken(ours: dict[str, Any], theirs: dict[str, Any], statistics: tuple[str, ...]) -> Taken:
    """Compare what two entries took in; values that no entry has say nothing.

    Args:
        ours, theirs: the values of two entries of one name.
        statistics: those that are worth comparing.
    """
    verdicts = [verdict(ours[key], theirs[key], plain=False, statistics=statistics) for key in _OTHERS if key in ours and key in theirs]
    known = "input" in ours and "input" in theirs
    arguments: list[tuple[Place, str]] = []
    others: list[Place] = []
    if "input_args" in ours and "input_args" in theirs:
        known = True
        here, there = _by_place(ours), _by_place(theirs)
        for place in [place for side in (here, there) for place in side if side[place] is Unread.LEFT_OUT]:
            known = False  # as where no input is recorded: it says nothing
            here.pop(place, None)
            there.pop(place, None)
        for place in [place for place in here if place in there]:
            a, b = here.pop(place), there.pop(place)
            same = verdict(a, b, plain=False, statistics=statistics)
            if same is Verdict.OTHER and _holds_tensor(a) and _holds_tensor(b):
                verdicts.append(same)
                others.append(place)
            elif same is Verdict.OTHER or verdict(a, b, plain=True, statistics=statistics) is Verdict.OTHER:
                arguments.append((place, f"is {_shown(b)} in the earlier run and {_shown(a)} here"))
            else:
                verdicts.append(same)
        _pair_up(here, there, statistics, verdicts)
        # Its counterpart may be a null of the other side, under another name.
        if any(isinstance(value, Unread) for value in (*here.values(), *there.values())):
            verdicts.append(Verdict.UNKNOWN)
            here, there = ({place: value for place, value in side.items() if not isinstance(value, Unread)} for side in (here, there))
        arguments += [(place, f"is there in this run only ({_shown(value)})") for place, value in here.items() if value is not None]
        arguments += [(place, f"is there in the earlier run only ({_shown(value)})") for place, value in there.items() if value is not None]
    return Taken(together(verdicts), tuple(arguments), others[0] if others else None, known)


def in_words(name: str, arguments: tuple[tuple[Place, str], ...]) -> str:
    """The arguments of an entry that differ, for a message; empty where none does."""
    texts = [f"its argument {place_in_words(name, place)} {text}" for place, text in arguments]
    more = len(texts) - _MOST_NAMED
    return ", ".join(texts[:_MOST_NAMED]) + (f" and {more} more differ" if more > 0 else "")


def place_in_words(name: str, place: Place) -> str:
    """An argument of an entry by its name, or by its position where that is not known."""
    return argument_name(name, place) if isinstance(place, int) else place


def _by_place(entry: dict[str, Any]) -> dict[Place, Any]:
    positional, keyword = entry.get("input_args"), entry.get("input_kwargs")
    found: dict[Place, Any] = dict(enumerate(positional)) if isinstance(positional, list) else {}
    return found | (keyword if isinstance(keyword, dict) else {})


def _pair_up(here: dict[Place, Any], there: dict[Place, Any], statistics: tuple[str, ...], verdicts: list[Verdict]) -> None:
    """What one run passes by position and the other by name has two places: tensors meet in their order, other values by being equal."""
    for ours, theirs in zip([p for p in here if _holds_tensor(here[p])], [p for p in there if _holds_tensor(there[p])], strict=False):
        verdicts.append(verdict(here.pop(ours), there.pop(theirs), plain=False, statistics=statistics))
    for ours in [p for p in here if not _holds_tensor(here[p])]:
        equal = (p for p in there if not _holds_tensor(there[p]) and verdict(here[ours], there[p], plain=True) is Verdict.SAME)
        if (theirs_too := next(equal, None)) is not None:
            del here[ours], there[theirs_too]


def _holds_tensor(record: Any) -> bool:
    if isinstance(record, list):
        return any(map(_holds_tensor, record))
    return isinstance(record, dict) and (is_tensor(record) or (not is_value(record) and any(map(_holds_tensor, record.values()))))


def _shown(record: Any) -> str:
    text = _text(record)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def _text(record: Any) -> str:
    if isinstance(record, list):
        return f"[{', '.join(map(_text, record[:_MOST_SHOWN]))}]"
    if not isinstance(record, dict):
        return record.value if isinstance(record, Unread) else str(record)
    if is_tensor(record):
        return "a tensor"
    if is_value(record):
        value = record.get("value")
        return f'"{value}"' if record["type"] == "str" else str(value)
    return f"{{{', '.join(f'{key}: {_text(value)}' for key, value in list(record.items())[:_MOST_SHOWN])}}}"
