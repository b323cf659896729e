"""Record a script as it is: nothing in it has to be changed.

The command comes after --: python train.py, torchrun train.py, accelerate launch train.py, python -m package, an installed program.
Models and steps are found while it runs; at the end stands what was taken as model and as step. Output, signals and exit code are
those of the command.

Exit code: that of the command; 2 where it could not be started.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

LEVELS = "L0, L1 or mix"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.usage = "msprobe run [options] -- command ..."
    parser.add_argument("--config", metavar="FILE", help="a config.json; the options below go before it (default: statistics, level mix)")
    parser.add_argument("--task", metavar="TASK", help="statistics, tensor, nan_check or structure")
    parser.add_argument("--level", metavar="LEVEL", help=f"{LEVELS} (default mix where there is no --config)")
    parser.add_argument("--step", type=_ids, metavar="NUMBERS", help="only these steps, as in 0,2-3 (default: all)")
    parser.add_argument("--rank", type=_ids, metavar="NUMBERS", help="only these ranks, as in 0,2-3 (default: all)")
    parser.add_argument("--dump-path", metavar="DIR", help="where the dump goes (default: ./dump_path)")
    parser.add_argument(
        "--step-on",
        type=_step_on,
        default=("auto", 1),
        metavar="WHAT",
        help="what ends a step: optimizer, a step of one; optimizer:N, N steps, as the two of a GAN; forward, a call of a model; "
        "forward:N, N calls; auto (default): optimizer where there is one",
    )
    parser.add_argument(
        "--models",
        choices=["auto", "all"],
        default="auto",
        help="auto: what an optimizer trains, without optimizers what has parameters; all: every module that is called by the script",
    )
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="-- command", help="what to run, after --: python train.py ...")


def _ids(text: str) -> list[int | str]:
    from msprobe.config.values import typed_numbers

    parts = [part.strip() for part in typed_numbers(text).split(",")]
    if not all(re.fullmatch(r"[0-9]+(-[0-9]+)?", part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: must be numbers and ranges with commas between them, as in 0,2-3")
    return [int(part) if part.isdigit() else part for part in parts]


def _step_on(text: str) -> tuple[str, int]:
    if text in ("auto", "optimizer", "forward"):
        return text, 1
    kind, _, number = text.partition(":")
    if kind not in ("optimizer", "forward") or not re.fullmatch("[0-9]{1,9}", number) or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be auto, optimizer, optimizer:N, forward or forward:N with N of 1 or more")
    return kind, int(number)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command, returns the exit code."""
    from msprobe.launch.run import Options, run

    command = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    fields: dict[str, Any] = {name: getattr(arguments, name) for name in ("task", "level", "step", "rank", "dump_path")}
    step_on, number = arguments.step_on
    forwards, optimizer_steps = (1, number) if step_on == "optimizer" else (number, 1)
    return run(Options(command, arguments.config, fields, step_on, forwards, optimizer_steps, arguments.models))
