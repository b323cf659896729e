"""Our statements after a formatter: broken into several lines, or given lines of their own. They are still ours, and unedited."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from msprobe.instrument import marks
from msprobe.instrument.source import split_lines

_LONGEST = 40
"""So many statements one line is looked for in."""
_SKIP = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)


@dataclass(frozen=True)
class Piece:
    """A logical line: a simple statement, several on one line, or the head of a compound one.

    Attributes:
        first, last: its lines, counted from 1.
        indent: what is in front of it.
        code: its text in one line, without comments.
        comment: the comment at its end, with the space in front of it; empty where there is none.
    """

    first: int
    last: int
    indent: str
    code: str
    comment: str


def pieces(text: str) -> list[Piece]:
    """The logical lines of a text; none where it is no Python."""
    lines = split_lines(text)
    found: list[Piece] = []
    begun: tokenize.TokenInfo | None = None
    comments: dict[int, int] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                comments[token.start[0]] = token.start[1]
            elif token.type == tokenize.NEWLINE and begun is not None:
                found.append(_piece(lines, begun, token.start[0], comments))
                begun = None
            elif token.type not in _SKIP and begun is None:
                begun = token
    except (tokenize.TokenError, SyntaxError, ValueError):
        return []
    return found


def _piece(lines: list[str], begun: tokenize.TokenInfo, last: int, comments: dict[int, int]) -> Piece:
    first = begun.start[0]
    bare = [lines[number - 1][: comments.get(number)].strip() for number in range(first, last + 1)]
    code = ""
    for part in bare:
        close = not code or code.endswith(("(", "[", "{")) or part.startswith((")", "]", "}"))
        code += part if close else f" {part}"
    code = re.sub(r",(?=[)\]}])", "", code)
    code = re.sub(r"^(from \S+ import )\((.*)\)$", r"\1\2", code)
    end = lines[last - 1].rstrip("\r\n")
    comment = "" if last not in comments else end[len(end[: comments[last]].rstrip()) :]
    return Piece(first, last, lines[first - 1][: begun.start[1]], code, comment)


def ours(every: list[Piece], line: int, text: str) -> range | None:
    """The lines of the statement whose mark stands in this line, where it is as we wrote it but for its line breaks; else None."""
    here = next((number for number, one in enumerate(every) if one.first <= line <= one.last), None)
    if here is None:
        return None
    head = here
    while head > 0 and len(every[head].indent) >= len(every[here].indent):
        head -= 1
    mark = text[text.index(marks.ANY) :].strip()
    for begin, codes in ((here, [every[here].code]), (head, [one.code for one in every[head : here + 1]])):
        code = codes[0] if len(codes) == 1 else f"{codes[0]} {'; '.join(codes[1:])}"
        if any(marks.ours(f"{one}  {mark}") for one in _quoted(code)):
            return range(every[begin].first, every[here].last + 1)
    return None


def changed(every: list[Piece], comment: str, line: int) -> tuple[range, str] | None:
    """The lines that the comment of ours in this line tells of, where they are the same but for their line breaks, and what they were."""
    head = next((number for number, one in enumerate(every) if one.first > line), None)
    if head is None:
        return None
    for last in range(head, min(head + _LONGEST, len(every))):
        codes = [one.code for one in every[head : last + 1]]
        apart = len(codes) > 1 and len(every[head + 1].indent) == len(every[head].indent)  # `a; b`, else `if a: b; c`
        text = "; ".join(codes) if apart or len(codes) == 1 else f"{codes[0]} {'; '.join(codes[1:])}"
        for one in _quoted(text):
            for code in (one, one + every[last].comment):
                old = marks.old_line(comment, every[head].indent + code)
                if old is not None:
                    return range(every[head].first, every[last].last + 1), old
    return None


def _quoted(text: str) -> Iterator[str]:
    """Formatters change quotes too."""
    yield text
    yield text.replace('"', "'")
    yield text.replace("'", '"')
