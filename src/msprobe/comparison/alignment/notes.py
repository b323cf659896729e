"""What the reader should know of how the calls were paired."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.alignment.side import Rename
from msprobe.comparison.match import CallPair, Matching, renamed_modules
from msprobe.comparison.rows import Call

_SHOWN = 3


def pairing_notes(matching: Matching, rename: Rename | None = None) -> list[str]:
    """One sentence each. `rename`: names that the user has mapped are not told again."""
    notes: list[str] = []
    renamed = renamed_modules(matching.pairs, rename)
    if renamed:
        more = f", and {len(renamed) - 1} more modules alike" if len(renamed) > 1 else ""
        notes.append(f"{renamed[0]}{more}; compared with each other all the same")
    for side, names in zip(("target", "golden run"), matching.partners.again, strict=True):
        if names:
            notes.append(
                f"{len(names)} calls of the {side} were run again by the backward pass (activation checkpointing);"
                " what they say of requires_grad holds for the first run as well"
            )
    if matching.partners.moved:
        notes.append(
            f"{matching.partners.moved} calls ran in another order in the golden run;"
            " each is compared with the one that takes in the same values"
        )
    return notes


def nested_otherwise(pairs: Sequence[CallPair]) -> str:
    """What to say when calls have partners and no value in them has: one call as an example; "" where no call has a partner."""
    for pair in pairs:
        if pair.target is not None and pair.golden is not None and pair.target.rows and pair.golden.rows:
            sides = [_places(call) for call in (pair.target, pair.golden)]
            return f"both list {pair.name}, but its values are nested differently: {sides[0]} in the target, {sides[1]} in the golden dump"
    return ""


def _places(call: Call) -> str:
    shown = [row.key or "the value itself" for row in call.rows[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(call.rows) - _SHOWN} more" if len(call.rows) > _SHOWN else "")
