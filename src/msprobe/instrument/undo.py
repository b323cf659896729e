"""Takes out what `apply` has put in, whatever else was edited meanwhile."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass, field

from msprobe.instrument import marks
from msprobe.instrument.source import line_end, split_lines

_REACH = 60
"""So many lines behind the comment that tells of it a changed line is looked for: a statement over several lines, and lines put in."""


@dataclass(frozen=True)
class Undone:
    """What the text is without our lines.

    Attributes:
        text: without those that are as we wrote them.
        taken: how many were taken out or changed back.
        edited: lines of the text that was given, counted from 1, that carry our mark and were edited by somebody.
    """

    text: str
    taken: int
    edited: list[int] = field(default_factory=list)


def undo(text: str, keep: frozenset[int] = frozenset()) -> Undone:
    """The text without our lines; lines in `keep` (counted from 1) stay as they are."""
    lines = split_lines(text)
    inside = _inside_strings(text)
    skip: set[int] = set()
    restored: dict[int, str] = {}
    edited: list[int] = []
    for index, line in enumerate(lines):
        number = index + 1
        if number in inside or number in keep or not marks.marked(line):
            continue
        if marks.told(line) is not None:
            found = next(
                (i for i in range(index + 1, min(index + _REACH, len(lines))) if marks.old_line(line, lines[i]) and i not in restored), None
            )
            if found is None:
                edited.append(number)
                continue
            old = marks.old_line(line, lines[found])
            assert old is not None
            restored[found] = old
            skip.add(index)
        elif marks.ours(line):
            skip.add(index)
        else:
            edited.append(number)
    left = [restored.get(index, line) for index, line in enumerate(lines) if index not in skip]
    if left and lines and len(lines) - 1 in skip and not line_end(lines[-1]):
        left[-1] = left[-1].rstrip("\r\n")
    return Undone("".join(left), len(skip), edited)


def without_edited(text: str, name: str | None) -> str:
    """The text without our lines, edited or not. Of a changed line that was edited since, only the calls of the debugger `name` go."""
    lines = split_lines(text)
    edited = undo(text).edited
    changed: dict[int, str] = {}
    ours = re.compile(rf"\b{re.escape(name or 'debugger')}\.(?:start|stop|step)\([^()]*\)")
    for number in edited:
        if marks.told(lines[number - 1]) is None:
            continue
        for index in range(number, min(number + 3, len(lines))):
            if ours.search(lines[index]) and not marks.marked(lines[index]):
                changed[index] = re.sub(rf"; {ours.pattern}|{ours.pattern}; ", "", lines[index])
                break
    kept = [changed.get(index, line) for index, line in enumerate(lines) if index + 1 not in edited]
    return undo("".join(kept)).text


def _inside_strings(text: str) -> frozenset[int]:
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
