"""`msprobe`: finds the sub-command and runs it. Each command lives in its own file, imported when it is called."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from msprobe import __version__
from msprobe.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PIPE, fail
from msprobe.errors import MsprobeException

COMMANDS: dict[str, str] = {
    "compare": "compare two dumps value by value and name the first call that differs",
    "merge_result": "put the results of several ranks side by side",
    "run": "record a script as it is, without a line in it",
    "isolate": "run a script with golden inputs for every module and name what is wrong",
    "enable": "put the lines that record into a script, and a config.json beside it",
    "disable": "take these lines out again",
}
"""Command -> what it does. The module `msprobe.cli.<command>` has `add_arguments(parser)` and `run(arguments) -> exit code`."""

NOT_YET: frozenset[str] = frozenset(
    [
        "acc_check",
        "multi_acc_check",
        "overflow_check",
        "config_check",
        "api_precision_compare",
        "graph_visualize",
        "data2db",
        "parse",
        "offline_dump",
        "install_deps",
    ]
)
"""Commands of the existing tool that are not built yet."""


class Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As usual; what is no option of the command is told with the nearest one that is."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}")
        return found

    def _nearest(self, unknown: Sequence[str]) -> str:
        known = [flag for flag in self._option_string_actions if self._option_string_actions[flag].help is not argparse.SUPPRESS]
        given = next((text.partition("=")[0] for text in unknown if text.startswith("-")), "")
        close = difflib.get_close_matches(given, known, n=1)
        return f"; did you mean {close[0]}?" if close else ""

    def error(self, message: str) -> NoReturn:
        fail(f"{message} (see {self.prog} --help)", self.prog)
        raise SystemExit(EXIT_FAILED)


def _top_parser() -> Parser:
    lines = [f"  {name:<12} {text}" for name, text in COMMANDS.items()]
    parser = Parser(
        prog="msprobe",
        description="Find where two runs of a deep-learning model part, down to the line of code.",
        epilog="commands:\n" + "\n".join(lines) + "\n\n`msprobe <command> --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=f"msprobe {__version__}")
    parser.add_argument("command", metavar="<command>", nargs="?", help="what to do, see below")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="arguments of the command")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: arguments without the program's name; those of the process when None.

    Returns:
        0: done, nothing found. 1: done, something found. 2: could not be done. 130: interrupted.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    program = f"msprobe {given[0]}" if given and given[0] in COMMANDS else "msprobe"
    try:
        code = _run(given, ends=True) if argv is None else _run(given)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BaseException as error:
        if _is_of_interruption(error):
            return EXIT_INTERRUPTED
        if not isinstance(error, Exception):
            raise
        return _failed(error, program)


def _is_of_interruption(error: BaseException) -> bool:
    """Ctrl-C, or what went wrong in cleaning up after it: shutil closes a directory twice where it comes in between."""
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, KeyboardInterrupt):
            return True
        one = one.__context__
    return False


def _failed(error: Exception, program: str) -> int:
    """Say what went wrong; gives the exit code."""
    if isinstance(error, BrokenPipeError):
        # The reader of our output left (`| head`). Python would complain once more when it flushes at exit.
        _discard_stdout()
        return EXIT_PIPE
    if isinstance(error, MsprobeException):
        fail(str(error), program)
    elif isinstance(error, OSError):
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), program)
    elif isinstance(error, MemoryError):
        fail("this machine has too little memory for these dumps; compare single ranks, or record fewer calls", program)
    else:
        import traceback

        traceback.print_exception(error)
        fail("this is a fault in msprobe, not in what you gave it; please report it with the lines above", program)
    return EXIT_FAILED


def _run(argv: list[str], ends: bool = False) -> int:
    parser = _top_parser()
    try:
        options = parser.parse_args(argv)
        if options.command is None:
            parser.print_help()
            return EXIT_FAILED
        if options.command in NOT_YET:
            fail(f"the command {options.command!r} is not available yet")
            return EXIT_FAILED
        if options.command not in COMMANDS:
            close = difflib.get_close_matches(options.command, COMMANDS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            fail(f"unknown command {options.command!r}; {hint}there are: {', '.join(COMMANDS)}")
            return EXIT_FAILED
        module = importlib.import_module(f"msprobe.cli.{options.command}")
        command_parser = Parser(
            prog=f"msprobe {options.command}",
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command_parser)
        parse = getattr(module, "parse", Parser.parse_args)  # for what argparse does not know
        arguments = parse(command_parser, options.arguments)
        arguments.ends = ends  # whether the process does, after this
    except SystemExit as stop:  # argparse ends the process after --help and after an error
        return stop.code if isinstance(stop.code, int) else EXIT_FAILED
    code: int = module.run(arguments)
    return code


def _discard_stdout() -> None:
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    sys.exit(main())
