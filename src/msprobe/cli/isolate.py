"""Run a script once with the inputs of every module taken from a golden dump, and name what is wrong.

The golden dump is a tensor dump of level L0 or mix. The script has the usual lines of PrecisionDebugger; what its configuration says does
not hold during these runs. Each module works on golden inputs, so each is judged on its own; what arrives before it is replaced shows
wrong code between modules. Where one run cannot decide, further runs halve the list of modules.

Exit code: 0 nothing is wrong in what was looked at, 1 something is or could not be compared, 2 it could not be done.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli.errors import EXIT_FOUND, EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("--golden", required=True, type=Path, metavar="DUMP", help="root of the golden dump (with step* inside)")
    parser.add_argument(
        "-o", "--output", default=Path("./isolate"), type=Path, metavar="DIR", help="where the results go (default ./isolate)"
    )
    parser.add_argument("--step", type=_step, metavar="N", help="the golden step to use (default: its first)")
    parser.add_argument("--halve", action="store_true", help="halve the list of module calls even where one run decides")
    parser.add_argument("--resume", action="store_true", help="go on with the search in DIR that was interrupted")
    parser.add_argument("--to-the-end", action="store_true", help="let the script go on after the step that is needed")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="-- command", help="what to run, after --: python train.py ...")


def _step(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a step: an integer of 0 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Searches, prints, returns the exit code."""
    from msprobe.cli.console import show
    from msprobe.comparison.block import Line
    from msprobe.isolation.isolate import Options, isolate
    from msprobe.isolation.words import details, wrapped

    command = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    options = Options(arguments.golden, command, arguments.output, arguments.step, arguments.halve, arguments.resume, arguments.to_the_end)
    try:
        result = isolate(options, lambda line: show([line]))
    except KeyboardInterrupt:
        show([Line(f"interrupted; with --resume and the same arguments the search in {arguments.output} goes on", "dim")])
        raise
    lines = [Line(""), *wrapped(Line(result.sentence, "bad" if result.found else "good")), *details(result.verdict)]
    lines += [part for note in result.notes for part in wrapped(Line(f"note: {note}", "dim"))]
    lines += [Line(f"result: {path}") for path in (*result.files, arguments.output / "isolate.json")]
    show(lines)
    return EXIT_FOUND if result.found else EXIT_OK
