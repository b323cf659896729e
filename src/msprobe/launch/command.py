"""The command that is to be recorded: can Python below it be reached, and with which environment."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from msprobe.errors import UsageError
from msprobe.launch.orders import EVENTS, VARIABLE, Orders

INJECTED = Path(__file__).resolve().parent / "injected"
_PYTHON = re.compile(r"python(\d+(\.\d+)?t?)?(\.exe)?")
_WITH_VALUE = "cmXWQ"
"""Options of Python that take a value; after -c and -m the rest belongs to the script."""


def cannot_run(command: Sequence[str], error: OSError) -> UsageError:
    """What to say where a command cannot be started."""
    script = command[0].endswith(".py") and os.path.isfile(command[0])
    hint = f"; a script needs its interpreter: python {command[0]}" if script else ""
    return UsageError(f"the command {command[0]!r} cannot be run: {error.strerror}{hint}")


def check(command: Sequence[str]) -> None:
    """Raise UsageError where Python is told to look neither at the environment nor at site: nothing could be recorded."""
    option = _shuts_out(command)
    if option is not None:
        raise UsageError(
            f"{command[0]} runs Python with -{option}, which keeps msprobe out, so nothing could be recorded: "
            "leave the option out, or record with PrecisionDebugger in the script"
        )


def _shuts_out(command: Sequence[str]) -> str | None:
    """The letter of Python's option that does, on the command line or in the first line of a script."""
    if _PYTHON.fullmatch(os.path.basename(command[0])):
        return _letter(command[1:])
    found = shutil.which(command[0])
    if found is None:
        return None
    try:
        with open(found, "rb") as file:
            head = file.read(512)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if word != "-S"]
    return _letter(words[1:]) if words and _PYTHON.fullmatch(os.path.basename(words[0])) else None


def _letter(arguments: Sequence[str]) -> str | None:
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            return None
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], 1):
            if letter in "IES":
                return letter
            if letter in "cm":
                return None
            if letter in _WITH_VALUE:
                if place == len(word) - 1 and waiting:
                    waiting.pop(0)
                break
    return None


def environment(orders: Orders, events: str, before: Mapping[str, str]) -> dict[str, str]:
    """The variables of the command: all there were, the orders, and our directory first on Python's path."""
    ours = str(INJECTED)
    paths = [path for path in before.get("PYTHONPATH", "").split(os.pathsep) if path != ours] if before.get("PYTHONPATH") else []
    return {**before, VARIABLE: orders.text(), EVENTS: events, "PYTHONPATH": os.pathsep.join([ours, *paths])}
