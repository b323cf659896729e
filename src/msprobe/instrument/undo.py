"""Takes out what `apply` has put in, whatever else was edited meanwhile."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass, field
from functools import cached_property

from msprobe.instrument import marks, reflowed
from msprobe.instrument.source import line_end, split_lines

_REACH = 1000
"""So many lines behind the comment that tells of it a changed line is looked for: a statement over several lines, and lines put in."""


@dataclass(frozen=True)
class Undone:
    """What the text is without our lines.

    Attributes:
        text: without those that are as we wrote them.
        taken: how many were taken out or changed back.
        edited: lines of the text that was given, counted from 1, that carry our mark and were edited by somebody.
        origin: for each line that is left, which it was in the text that was given, counted from 1.
    """

    text: str
    taken: int
    edited: list[int] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)


def undo(text: str, keep: frozenset[int] = frozenset()) -> Undone:
    """The text without our lines; those whose mark is in one of the lines in `keep` (counted from 1) stay as they are."""
    work = _Undoing(text)
    inside = inside_strings(text)
    for number, line in enumerate(work.lines, 1):
        if number in inside or number in keep or not marks.marked(line):
            continue
        if marks.told(line) is not None:
            done = work.change_back(number)
        elif marks.ours(line):
            work.skip.add(number)
            done = True
        else:
            done = work.take_reflowed(number)
        if done:
            work.taken += 1
        else:
            work.edited.append(number)
    return work.result()


class _Undoing:
    """Lines are counted from 1."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = split_lines(text)
        self.skip: set[int] = set()
        self.restored: dict[int, str] = {}
        self.edited: list[int] = []
        self.taken = 0

    @cached_property
    def pieces(self) -> list[reflowed.Piece]:
        return reflowed.pieces(self.text)

    def change_back(self, number: int) -> bool:
        """The line that the comment tells of is what it was again; False where it was edited."""
        comment = self.lines[number - 1]
        for found in range(number + 1, min(number + _REACH, len(self.lines)) + 1):
            old = None if found in self.restored else marks.old_line(comment, self.lines[found - 1])
            if old is not None:
                self.restored[found] = old
                self.skip.add(number)
                return True
        new = reflowed.changed(self.pieces, comment, number)
        if new is None:
            return False
        place, old = new
        self.restored[place[0]] = old + line_end(self.lines[place[-1] - 1])
        self.skip |= {number, *place[1:]}
        return True

    def take_reflowed(self, number: int) -> bool:
        """A statement of ours that a formatter has broken goes; False where it was edited."""
        place = reflowed.ours(self.pieces, number, self.lines[number - 1])
        self.skip |= set(place or ())
        return place is not None

    def result(self) -> Undone:
        origin = [number for number in range(1, len(self.lines) + 1) if number not in self.skip]
        left = [self.restored.get(number, self.lines[number - 1]) for number in origin]
        if left and self.lines and len(self.lines) in self.skip and not line_end(self.lines[-1]):
            left[-1] = left[-1].rstrip("\r\n")
        return Undone("".join(left), self.taken, self.edited, origin)


def inside_strings(text: str) -> frozenset[int]:
    """Numbers of the lines that end inside a string: what looks like a comment there is none."""
    inside: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type in _STRINGS and token.start[0] != token.end[0]:
                inside |= set(range(token.start[0], token.end[0]))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return frozenset()
    return frozenset(inside)


_STRINGS = {tokenize.STRING, *(getattr(tokenize, name) for name in ("FSTRING_MIDDLE", "TSTRING_MIDDLE") if hasattr(tokenize, name))}
