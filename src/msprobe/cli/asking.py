"""Questions at the terminal, for commands that change files: plain input(), and an end that changes nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import NoReturn

from msprobe.cli.console import show
from msprobe.comparison.block import Line
from msprobe.errors import UsageError
from msprobe.instrument.answer import Answer, Question


def ask(question: Question) -> str:
    """The answer to a question: one of its choices where it has some and no other text is allowed.

    Raises UsageError at the end of standard input.
    """
    show([Line(""), Line(question.text, "head")])
    for choice in question.choices:
        show([Line(f"  {choice.value:<12} {choice.text}")])
    allowed = [choice.value for choice in question.choices]
    default = f" [{question.recommended}]" if question.recommended is not None else ""
    while True:
        text = _input(f"{question.id}{default}: ").strip() or question.recommended or ""
        if text and (text in allowed or not allowed or question.many or question.id in ("rank", "step")):
            return text
        show([Line(f"  {text!r} is no answer; allowed: {', '.join(allowed)}" if allowed else "  an answer is needed", "bad")])


def agreed(text: str, *, required: bool = True) -> bool:
    """Whether the user says yes; an empty answer is a no.

    Args:
        text: the question.
        required: the end of standard input is no answer, and raises UsageError; else it is a no.
    """
    while True:
        answer = (_input(f"{text} [y/N]: ") if required else _read(f"{text} [y/N]: ") or "").strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False
        show([Line(f"  {answer!r} is no answer; allowed: y, n", "bad")])


def _input(prompt: str) -> str:
    text = _read(prompt)
    if text is None:
        raise UsageError("standard input ended at a question; nothing was changed (give the answers as options, or --yes)")
    return text


def _read(prompt: str) -> str | None:
    """A line; None at the end of standard input."""
    try:
        return input(prompt)
    except (EOFError, RuntimeError, ValueError):  # RuntimeError: there is no standard input; ValueError: it was closed, or is no text
        print()
        return None


def show_diff(diff: str) -> None:
    """A unified diff, coloured in a terminal."""
    styles = {"+": "good", "-": "bad", "@": "dim"}
    show([Line(""), *(Line(line, styles.get(line[:1], "")) for line in diff.splitlines())])


def show_notes(notes: Sequence[str]) -> None:
    """Sentences beside the matter."""
    show([Line(f"note: {note}", "dim") for note in notes])


def parse(parser: argparse.ArgumentParser, argv: list[str], command: str) -> argparse.Namespace:
    """The arguments; with --json among them wrong ones are an answer too, status `failed`."""
    if "--json" in argv:

        def error(message: str) -> NoReturn:
            answer = Answer(command, "", message=f"{message} (see {parser.prog} --help)")
            raise SystemExit(print_json(answer))

        setattr(parser, "error", error)  # noqa: B010 - a method of this one parser
    return parser.parse_args(argv)


def print_json(answer: Answer) -> int:
    """The answer for a program; gives the exit code."""
    print(json.dumps(answer.as_json(), ensure_ascii=True, indent=2))
    return answer.exit_code
