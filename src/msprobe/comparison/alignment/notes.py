"""What the reader should know of how the calls were paired."""

from __future__ import annotations

from msprobe.comparison.alignment.side import Rename
from msprobe.comparison.match import Matching, renamed_modules


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
