"""`msprobe disable`: what would be taken out of a script, what was edited since, and what is left to decide."""

from __future__ import annotations

import re
import shlex

from msprobe.instrument import marks, source
from msprobe.instrument.answer import Answer, Choice, Question
from msprobe.instrument.plan import config_of, difference
from msprobe.instrument.undo import undo, without_edited

_MADE = re.compile(r"^(\w+) = \w+\(config_path=")
_HEAD = re.compile(r"^(?:from msprobe\.|\w+ = \w+\(config_path=)")


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
        if not any(marks.marked(line) for line in source.split_lines(old)):
            answer.status, answer.message = "already", f"nothing that msprobe enable has put in is in {shown}"
            return answer
        source.check_writable(self.source)
        done = undo(old)
        name = _debugger(old)
        used = _uses(old, done.edited, name)
        if (done.edited or used) and edited is None:
            answer.questions.append(_question(old, done.edited, used, name))
            answer.status = "ask"
            answer.message = f"{len(done.edited) + len(used)} lines were edited since, or added, and need what was put in"
            return answer
        if edited == "keep" and (done.edited or used):
            self.text = undo(old, keep=_heads(old) | frozenset(done.edited)).text
            answer.notes.append(f"lines {_numbers(done.edited + used)} stay, and the import and the debugger that they need")
        elif done.edited or used:
            self.text = without_edited(old, name)
            if used:
                answer.notes.append(f"lines that you have added still use {name}, which is gone: {_numbers(used)} (numbers before)")
        else:
            self.text = done.text
        answer.diff = difference(old, self.text, shown)
        if not answer.diff and self.text == old:
            answer.status, answer.message = "already", f"nothing is left to take out of {shown} but what stays because you have edited it"
            return answer
        config = config_of(old)
        if config is not None:
            answer.notes.append(f"{config} and the recordings stay where they are")
        answer.status, answer.message = "ready", f"{shown}: {done.taken} lines of msprobe enable can be taken out"
        return answer

    def write(self, answer: Answer) -> None:
        """Makes an answer with status `ready` into one with status `written`. Raises UsageError, OSError."""
        assert self.text is not None
        source.replace(self.source, self.source.encoded(self.text))
        answer.written.append(str(self.source.path))
        answer.status = "written"
        answer.message = f"written: {self.source.path}"


def _debugger(text: str) -> str | None:
    for line in source.split_lines(text):
        found = _MADE.match(line)
        if found and marks.marked(line):
            return found[1]
    return None


def _heads(text: str) -> frozenset[int]:
    """Numbers of the lines that import and make the debugger."""
    lines = source.split_lines(text)
    return frozenset(number for number, line in enumerate(lines, 1) if marks.marked(line) and _HEAD.match(line))


def _uses(text: str, edited: list[int], name: str | None) -> list[int]:
    """Lines of the user's own that use the debugger: they were written since."""
    if name is None:
        return []
    left = undo(text, keep=frozenset(edited)).text
    word = re.compile(rf"(?<![\w.]){re.escape(name)}\.(?:start|stop|step|save|set_init_step|register_custom_api|restore_custom_api)\(")
    lines = source.split_lines(text)
    mine = [line for line in source.split_lines(left) if word.search(line.partition("#")[0]) and not marks.marked(line)]
    changed = {lines[n - 1 + k].strip() for n in edited for k in range(1, 3) if n - 1 + k < len(lines)}
    return [n for n, line in enumerate(lines, 1) if line in mine and line.strip() not in changed]


def _question(text: str, edited: list[int], used: list[int], name: str | None) -> Question:
    lines = source.split_lines(text)
    shown = "; ".join(f"{number}: {lines[number - 1].strip()[:80]}" for number in sorted({*edited, *used})[:10])
    what = f"Lines that need what msprobe enable has put in were edited or added since ({shown}). What becomes of them?"
    choices = (
        Choice("keep", "leave them, and what they need; take out all else"),
        Choice("remove", f"take out what was put in, edited or not; lines of your own stay, without {name or 'the debugger'}"),
    )
    return Question("edited", "--edited", what, choices)


def _numbers(lines: list[int]) -> str:
    return ", ".join(str(line) for line in sorted(set(lines)))
