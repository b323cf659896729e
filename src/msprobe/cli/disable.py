"""Take the lines that `msprobe enable` has put into a script out again; the file is then what it was, byte for byte.

Lines that were edited meanwhile elsewhere in the script stay as they are. Where lines of msprobe were edited themselves, it is asked.

Exit code: 0 done, or nothing to do; 1 something is left to decide; 2 it could not be done; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os

from msprobe.cli.errors import EXIT_FAILED, EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK, fail


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("script", metavar="SCRIPT", help="the script that msprobe enable has changed")
    parser.add_argument("--edited", choices=("keep", "remove"), help="what becomes of lines of msprobe that were edited since")
    parser.add_argument("--yes", action="store_true", help="no questions")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on standard output, no questions (docs/enable.md in the repository)"
    )
    parser.add_argument("--write", action="store_true", help="with --json: write")


def parse(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """The arguments."""
    from msprobe.cli.asking import parse as parsed

    return parsed(parser, argv, "disable")


def run(arguments: argparse.Namespace) -> int:
    """Shows, asks, writes, returns the exit code."""
    if arguments.json:
        return _for_program(arguments)
    if arguments.write:
        fail("--write belongs to --json; without it you are asked, or give --yes", "msprobe disable")
        return EXIT_FAILED
    try:
        return _for_person(arguments)
    except KeyboardInterrupt:
        fail("interrupted; nothing was changed", "msprobe disable")
        return EXIT_INTERRUPTED


def _for_program(arguments: argparse.Namespace) -> int:
    from msprobe.cli.asking import print_json
    from msprobe.errors import MsprobeException
    from msprobe.instrument.answer import Answer
    from msprobe.instrument.disabling import Removal

    answer = Answer("disable", os.path.abspath(arguments.script))
    try:
        removal = Removal(arguments.script)
        answer = removal.answer(arguments.edited)
        if answer.status == "ready" and arguments.write:
            removal.write(answer)
    except (MsprobeException, OSError) as error:
        answer.status, answer.message = "failed", " ".join(str(error).split())
    return print_json(answer)


def _for_person(arguments: argparse.Namespace) -> int:
    from msprobe.cli.asking import agreed, ask, show_diff, show_notes
    from msprobe.cli.console import show
    from msprobe.comparison.block import Line
    from msprobe.instrument.disabling import Removal

    removal = Removal(arguments.script)
    answer = removal.answer(arguments.edited)
    if answer.status == "ask":
        question = answer.questions[0]
        if arguments.yes:
            fail(f"--yes does not decide this, nothing was changed: {question.option} keep or remove: {question.text}", "msprobe disable")
            return EXIT_FOUND
        answer = removal.answer(ask(question))
    if answer.status == "already":
        show([Line(answer.message)])
        return EXIT_OK
    show_diff(answer.diff)
    show_notes(answer.notes)
    if not arguments.yes and not agreed("Take these lines out?"):
        show([Line("nothing was changed")])
        return EXIT_OK
    removal.write(answer)
    show([Line(answer.message, "good")])
    return EXIT_OK
