"""`msprobe disable`: what would be taken out of a script, what was edited since, and what is left to decide."""

from __future__ import annotations

import re
import shlex

from msprobe.errors import UsageError
from msprobe.instrument import source
from msprobe.instrument.answer import Answer, Choice, Question
from msprobe.instrument.plan import config_of, difference
from msprobe.instrument.removing import RESULT, Names, heads, names_of, uses, without_ours
from msprobe.instrument.undo import Undone, undo


class Removal:
    """One script that is to be as it was. Raises UsageError: it cannot be read, or is no text."""

    def __init__(self, path: str) -> None:
        self.source = source.read_any(path)
        self.text: str | None = None
        """The script without our lines, once everything is decided."""

    def answer(self, edited: str | None) -> Answer:
        """What would be taken out. `edited`: what becomes of lines that somebody has edited since, `keep` or `remove`; None: not said."""
        shown, old = self.source.shown, self.source.text
        answer = Answer("disable", str(self.source.path), off=f"msprobe disable {shlex.quote(shown)}")
        self.text = None
        done = undo(old)
        if not done.taken and not done.edited:
            answer.status, answer.message = "already", f"nothing that msprobe enable has put in is in {shown}"
            return answer
        source.check_writable(self.source)
        names = names_of(old)
        used = [done.origin[line - 1] for line in uses(done.text, names)]
        if (done.edited or used) and edited is None:
            answer.questions.append(_question(old, done.edited, used, names))
            answer.status = "ask"
            answer.message = f"{len({*done.edited, *used})} lines were edited since, or added, and need what was put in"
            return answer
        if edited == "keep" and (done.edited or used):
            self.text = undo(old, keep=_needed(old, done)).text
            answer.notes.append(f"lines {_numbers(done.edited + used)} stay, and the import and the debugger that they need")
        elif done.edited or used:
            self.text = without_ours(old, names)
            left = uses(self.text, names)
            if left:
                answer.notes.append(f"lines that you have added still use what is gone: {_shown(self.text, left)}")
        else:
            self.text = done.text
            if _is_python(old) and not _is_python(done.text):
                self.text = without_ours(old, names)
                answer.notes.append("a block that would be empty without the lines of msprobe holds `pass` now")
        self._check(old, done.edited)
        answer.diff = difference(old, self.text, shown)
        if not answer.diff and self.text == old:
            answer.status, answer.message = "already", f"nothing is left to take out of {shown} but what stays because you have edited it"
            return answer
        config = config_of(old)
        if config is not None:
            answer.notes.append(f"{config} and the recordings stay where they are")
        answer.status, answer.message = "ready", f"{shown}: {done.taken} lines of msprobe enable can be taken out"
        return answer

    def _check(self, old: str, edited: list[int]) -> None:
        """Raises UsageError where the script was Python and would be none."""
        assert self.text is not None
        if _is_python(old) and not _is_python(self.text):
            raise UsageError(
                f"{self.source.shown}: the lines of msprobe that were edited since cannot be taken out by themselves, nothing was changed; "
                f"take them out by hand: {_shown(old, edited)}"
            )

    def write(self, answer: Answer) -> None:
        """Makes an answer with status `ready` into one with status `written`. Raises UsageError, OSError."""
        assert self.text is not None
        source.replace(self.source, self.source.encoded(self.text))
        answer.written.append(str(self.source.path))
        answer.status = "written"
        answer.message = f"written: {self.source.path}"


def _needed(text: str, done: Undone) -> frozenset[int]:
    """Numbers of the lines that edited lines, and lines of the user's own, cannot do without, and of the edited ones."""
    top = {number for piece in heads(text) for number in range(piece.first, piece.last + 1)}
    results = set()
    if re.search(rf"\b{RESULT}\s*=", done.text):  # a `return` of the user's that was edited: its value is returned in a line of ours
        results = {n for n, line in enumerate(source.split_lines(text), 1) if re.match(rf"\s*return {RESULT}\b", line)}
    return frozenset({*done.edited, *top, *results})


def _question(text: str, edited: list[int], used: list[int], names: Names) -> Question:
    shown = _shown(text, [*edited, *used])
    what = f"Lines that need what msprobe enable has put in were edited or added since ({shown}). What becomes of them?"
    choices = (
        Choice("keep", "leave them, and what they need; take out all else"),
        Choice("remove", f"take out what was put in, edited or not; lines of your own stay, without {names.debugger or 'the debugger'}"),
    )
    return Question("edited", "--edited", what, choices)


def _shown(text: str, numbers: list[int]) -> str:
    lines = source.split_lines(text)
    return "; ".join(f"{number}: {lines[number - 1].strip()[:80]}" for number in sorted(set(numbers))[:10])


def _numbers(lines: list[int]) -> str:
    return ", ".join(str(line) for line in sorted(set(lines)))


def _is_python(text: str) -> bool:
    try:
        source.check_syntax(text, "")
    except UsageError:
        return False
    return True
