"""What a name that fits nothing may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MOST = 500  # names that are looked at closely; of more, those that share the most parts
_CUTOFF = 0.6


def nearest(name: str, known: Iterable[str], shown: int = 3, stars: bool = True) -> list[str]:
    """The names that are most like `name`, the best first; [] where none is like it.

    Args:
        name: what the user wrote, possibly with `*`.
        known: what there is; may be very many.
        shown: at most so many.
        stars: numbers in paths count, and are shown, as `*`.
    """
    wanted = starred(name) if stars else name
    candidates = list(dict.fromkeys(map(starred, known) if stars else known))
    if len(candidates) > _MOST:
        parts = set(wanted.split("."))
        candidates = sorted(candidates, key=lambda text: -len(parts.intersection(text.split("."))))[:_MOST]
    return get_close_matches(wanted, candidates, n=shown, cutoff=_CUTOFF)


def starred(name: str) -> str:
    """`layers.*.fc` of `layers.3.fc`."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def hint(name: str, known: Iterable[str], stars: bool = True) -> str:
    """`; nearest: transformer.h.*, transformer.wte`, or "" where nothing is like it."""
    found = nearest(name, known, stars=stars)
    return f"; nearest: {', '.join(found)}" if found else ""


def did_you_mean(word: str, allowed: Sequence[str]) -> str:
    """`; did you mean `modules`? Allowed are modules, classes, ...`"""
    found = get_close_matches(word, allowed, n=1, cutoff=0.5)
    meant = f"; did you mean `{found[0]}`?" if found else ";"
    return f"{meant} allowed are {', '.join(allowed)}"


__all__ = ["did_you_mean", "hint", "nearest", "starred"]
