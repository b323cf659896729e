"""`msprobe run`: checks everything once, starts the command, says at the end what was recorded."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msprobe.config import load_config
from msprobe.config.messages import printable, show
from msprobe.config.paths import current_directory
from msprobe.config.values import nearest, one_of
from msprobe.errors import UsageError
from msprobe.format.lines import read_lines
from msprobe.launch import child
from msprobe.launch.command import check, environment
from msprobe.launch.orders import Models, Orders, StepOn
from msprobe.launch.summary import summary

LEVELS = ("L0", "L1", "mix")


@dataclass(frozen=True)
class Options:
    """What the user chooses.

    Attributes:
        command: the program to run, and its arguments.
        config: path of a config.json.
        arguments: fields that go before the file; None: not given.
        step_on, forwards, optimizer_steps, models: see Orders.
    """

    command: Sequence[str]
    config: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    step_on: StepOn = "auto"
    forwards: int = 1
    optimizer_steps: int = 1
    models: Models = "auto"


def run(options: Options) -> int:
    """Runs the command; gives its exit code. Where a signal killed it, this process ends by the same one.

    Raises:
        UsageError: the command is missing, cannot be run, or keeps msprobe out.
        ConfigError: the configuration is wrong.
        OSError: there is no temporary directory.
    """
    if not options.command:
        raise UsageError("no command is given: msprobe run --level mix --step 0 -- python train.py ...")
    check(options.command)
    orders = _orders(options)
    with tempfile.TemporaryDirectory(prefix="msprobe-run-") as directory:
        events = Path(directory) / "events.jsonl"
        events.touch()
        code = child.run(options.command, environment(orders, str(events), os.environ))
        lines = summary(list(read_lines(events)))
    for line in lines:
        _say(line)
    return child.end_like(code)


def _orders(options: Options) -> Orders:
    """Checked here, so that a mistake is told once and before anything runs."""
    arguments = {name: value for name, value in options.arguments.items() if value not in (None, "")}
    level = arguments.get("level", "debug")
    if level not in (*LEVELS, "debug"):
        close = nearest(level, LEVELS)
        raise UsageError(f"--level is {show(level)}: must be {one_of(LEVELS)}" + (f"; did you mean {show(close)}?" if close else ""))
    if options.config is not None:
        _check_there(options.config)
    if options.config is None:
        arguments.setdefault("level", "mix")
    config = load_config(options.config, **arguments)
    if config.level == "debug":
        raise UsageError('level "debug" records what the script hands to save(); msprobe run records modules and APIs: L0, L1 or mix')
    arguments["dump_path"] = os.path.abspath(config.dump_path)  # the script may change its directory
    path = None if options.config is None else os.path.abspath(config.source)
    return Orders(path, arguments, options.step_on, options.forwards, options.optimizer_steps, options.models)


def _check_there(config: str) -> None:
    try:
        os.stat(config)
        if os.path.isdir(config):
            raise UsageError(f"--config {printable(config)}: is a directory; give the config.json in it")
    except FileNotFoundError:
        where = f"no such file (looked in {current_directory()})"
        raise UsageError(f"--config {printable(config)}: {where}; check the path, or leave --config out to use the defaults") from None
    except (OSError, ValueError):  # told by load_config
        pass


def _say(line: str) -> None:
    try:
        print(f"msprobe run: {line}", file=sys.stderr)
    except (OSError, ValueError):  # nobody reads any more
        pass
