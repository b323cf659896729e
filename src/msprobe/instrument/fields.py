"""The core fields of config.json: what is asked about each, and how an answer on the command line is read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from msprobe.config.available import built
from msprobe.config.loading import PACKAGED
from msprobe.config.values import LEVELS, TASKS_OF, Ids, nearest, one_of, typed_numbers
from msprobe.errors import UsageError
from msprobe.instrument.answer import Choice, Question

FIELDS = ("task", "level", "rank", "step", "dump_path")
OPTIONS = {"task": "--task", "level": "--level", "rank": "--rank", "step": "--step", "dump_path": "--dump-path"}
_TASKS = {
    "statistics": "Max, Min, Mean and Norm of every tensor: light",
    "tensor": "the statistics and every tensor itself: much disk",
    "nan_check": "only where NaN or an infinity comes up, and who made it (level L1)",
    "structure": "which modules and calls there are, no values",
    "acc_check": "each API runs once more in higher precision",
}
_LEVELS = {
    "L1": "calls of the API (torch functions, operators)",
    "L0": "modules (nn.Module)",
    "mix": "both, with the hierarchy",
    "debug": "only what the script saves itself with debugger.save(value, name)",
    "L2": "kernels, on an NPU",
}
_ONLY = {"nan_check": ("L1",), "structure": ("L0", "mix")}
"""Levels of tasks that do not have all."""


def tasks() -> tuple[str, ...]:
    """Those that are there to be used, the recommended one first."""
    return built("task", TASKS_OF["pytorch"])


def levels(task: str | None) -> tuple[str, ...]:
    """The levels that a task has, the recommended one first."""
    every = built("level", LEVELS)
    allowed = [level for level in every if level in _ONLY.get(task or "", every)]
    return tuple(sorted(allowed, key=lambda level: (level != "L1", level != "mix" and task == "structure", LEVELS.index(level))))


def check_pair(fields: Mapping[str, Any]) -> None:
    """Raises UsageError where the task that is given does not have the level that is."""
    task, level = fields.get("task"), fields.get("level")
    if task is not None and level is not None and level not in levels(task):
        raise UsageError(f"--level is {level!r}: with task {task} it must be {one_of(levels(task))}")


def needs_npu(fields: Mapping[str, Any]) -> bool:
    """Whether the chosen values work on an NPU alone, as far as they are built."""
    return fields.get("level") == "L2"


def read(name: str, text: str) -> Any:
    """The value of a field from the command line, as config.json has it.

    Raises UsageError: the field, the value, what is allowed.
    """
    if name in ("rank", "step"):
        return _ids(name, text)
    if name == "dump_path":
        if not text.strip() or "\0" in text:
            raise UsageError(f"{OPTIONS[name]} is {text!r}: it must be the path of a directory, for example {os.path.abspath('dump_path')}")
        return text
    allowed = tasks() if name == "task" else built("level", LEVELS)
    if text not in allowed:
        hint = nearest(text, allowed)
        raise UsageError(f"{OPTIONS[name]} is {text!r}: must be {one_of(allowed)}" + (f'; did you mean "{hint}"?' if hint else ""))
    return text


def _ids(name: str, text: str) -> list[int | str]:
    """`all` and `[]`: every one. `0,1`, `4-6`, `[0, "4-6"]`: these."""
    bare = typed_numbers(text).strip().strip("[]")
    if bare.strip().lower() in ("", "all"):
        return []
    parts = [part.strip().strip("\"'") for part in bare.split(",")]
    value: list[int | str] = [int(part) if re.fullmatch(r"[0-9]{1,9}", part) else part for part in parts]
    try:
        TypeAdapter(Ids).validate_python(tuple(value))
    except ValidationError as error:
        first = error.errors()[0]
        wrong = value[first["loc"][0]] if first["loc"] and isinstance(first["loc"][0], int) else text
        which = "" if wrong == bare.strip() else f"{wrong!r} "
        raise UsageError(f"{OPTIONS[name]} is {text!r}: {which}{first['msg']}; allowed: all, or such as 0,1 or 4-6") from None
    return value


def shown(name: str, value: Any) -> str:
    """A value as it would be given on the command line."""
    if name in ("rank", "step"):
        return ",".join(str(one) for one in value) if value else "all"
    return str(value)


def question(name: str, given: Mapping[str, Any]) -> Question:
    """What to ask about a field; `given` are the fields that are known."""
    task = given.get("task")
    if name == "task":
        text = "What is recorded?"
        there = [one for one in tasks() if given.get("level") in (None, *levels(one))]
        choices, recommended = [Choice(one, _TASKS[one]) for one in there], "statistics"
    elif name == "level":
        text = "What is a record of?"
        allowed = levels(task)
        choices, recommended = [Choice(one, _LEVELS[one]) for one in allowed], allowed[0]
    elif name == "rank":
        text = (
            "Which ranks record? A run of one process must say all; with several also 0,1 or 4-6. A rank that does not run records nothing."
        )
        choices, recommended = [Choice("all", "every rank")], "all"
    elif name == "step":
        text = "Which steps are recorded, counted from 0? For a first, short run 0,1; ranges such as 4-6 are allowed."
        choices, recommended = (
            [Choice("0,1", "the first two: a short run"), Choice("all", "every step: for a run whose steps are few")],
            "0,1",
        )
    else:
        text = "Where do the recordings go? A directory that is made when needed; an absolute path is best."
        choices, recommended = [], os.path.abspath("dump_path")
    return Question(name, OPTIONS[name], text, tuple(choices), recommended)


def content(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with these core fields; everything else has its recommended default and is written down."""
    with open(PACKAGED, encoding="utf-8") as file:
        packaged = json.load(file)
    task = fields["task"]
    return {
        "task": task,
        "dump_path": fields["dump_path"],
        "rank": fields["rank"],
        "step": fields["step"],
        "level": fields["level"],
        "async_dump": False,
        "extra_info": True,
        task: packaged.get(task, {}),
    }
