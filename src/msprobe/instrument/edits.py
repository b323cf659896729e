"""Changes of a text, line by line, and the text with them. All other bytes stay what they are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from msprobe.instrument.marks import mark, was
from msprobe.instrument.source import line_end, split_lines


@dataclass(frozen=True)
class Insert:
    """New lines behind line `after` (counted from 1; 0: before the first).

    Where several stand behind one line, lower `order` comes first.
    """

    after: int
    indent: str
    code: tuple[str, ...]
    order: int = 0


@dataclass(frozen=True)
class Splice:
    """`new` in the place of the characters from `column` to `end` of a line.

    `above`: the line where the statement begins; the comment that tells what the line was can stand in front of that one only.
    """

    line: int
    column: int
    end: int
    new: str
    above: int


Edit = Insert | Splice


def apply(text: str, edits: list[Edit]) -> str:
    """The text with all edits in it, each marked. An edit that is given twice is made once."""
    lines = split_lines(text)
    ends = [line_end(line) for line in lines if line_end(line)]
    common = max(set(ends), key=ends.count) if ends else "\n"
    comments: dict[int, list[str]] = defaultdict(list)
    inserts: dict[int, list[Insert]] = defaultdict(list)
    splices: dict[int, list[Splice]] = defaultdict(list)
    for edit in dict.fromkeys(edits):
        if isinstance(edit, Insert):
            inserts[edit.after].append(edit)
        else:
            splices[edit.line].append(edit)
    changed = dict(enumerate(lines, 1))
    for number, parts in sorted(splices.items()):
        body = lines[number - 1].rstrip("\r\n")
        new = body
        for part in sorted(parts, key=lambda part: part.column, reverse=True):
            new = new[: part.column] + part.new + new[part.end :]
        indent = body[: len(body) - len(body.lstrip(" \t\f"))]
        first = lines[parts[0].above - 1]
        margin = first[: len(first) - len(first.lstrip(" \t\f"))]
        comments[parts[0].above].append(margin + was(body[len(indent) :], new[len(indent) :]))
        changed[number] = new + line_end(lines[number - 1])

    result: list[str] = []
    for number in range(len(lines) + 1):
        if number:
            end = line_end(lines[number - 1]) or common
            result += [comment + end for comment in comments[number]]
            result.append(changed[number])
        for insert in sorted(inserts[number], key=lambda one: one.order):
            end = (line_end(lines[number - 1]) if number else "") or common
            if result and not line_end(result[-1]):
                result[-1] += end
            result += [insert.indent + mark(code) + end for code in insert.code]
    if lines and not line_end(lines[-1]) and result[-1] != changed[len(lines)]:
        result[-1] = result[-1].rstrip("\r\n")  # the file had no line end at its end; so undo knows it
    return "".join(result)
