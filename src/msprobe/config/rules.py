"""What no field can tell alone: which fields go together, and with which framework."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from msprobe.config.available import built
from msprobe.config.messages import Loc
from msprobe.config.paths import why_not_directory, why_not_writable
from msprobe.config.result import Config
from msprobe.config.values import TASKS_OF, one_of

Problem = tuple[Loc, Any, str]

TITLE = {"pytorch": "PyTorch", "mindspore": "MindSpore"}

# A second backward pass over one graph gets `.pass1` at the end of its names.
_PASS = r"(\.pass[0-9]+)?"
_MODULE_NAME = {
    "pytorch": re.compile(r"Module\..+\.(forward|backward)\.[0-9]+" + _PASS),
    "mindspore": re.compile(r"(Cell|Module)\..+\.(forward|backward)\.[0-9]+" + _PASS),
}
_API_NAME = re.compile(r"(?!Module\.|Cell\.).+\..+\.[0-9]+\.(forward|backward)" + _PASS)


def structure_level(task: str, level: str) -> str:
    """The level that is used: task structure knows L0 and mix only, anything else becomes mix."""
    return "mix" if task == "structure" and level not in ("L0", "mix") else level


def broken_rules(config: Config) -> Iterator[Problem]:
    """Place, value and reason of every rule that `config` breaks."""
    yield from _task(config)
    yield from _level(config)
    yield from _async_dump(config)
    yield from _scope(config)
    yield from _nan_check(config)
    yield from _kernels_of_mindspore(config)
    yield from _directories(config)


def useless_fields(config: Config) -> Iterator[tuple[Loc, str]]:
    """Place and remark for fields that are right but have no effect in this combination."""
    section = config.section
    if section.tensor_list and config.level == "debug":
        yield (config.task, "tensor_list"), 'has no effect at level "debug"'
    if config.framework == "mindspore" and config.level == "L2":
        for name in ("scope", "tensor_list"):
            if getattr(section, name):
                yield (config.task, name), 'has no effect at level "L2": name kernels in "list"'
    for name in ("scope", "list"):
        if getattr(section, name) and config.level == "debug":
            yield (config.task, name), 'has no effect at level "debug", where only what save() is given is recorded'
    if "" in section.list and config.level != "debug":
        yield (config.task, "list"), 'holds "", which is a part of every name: everything is recorded'
    if "" in section.tensor_list and config.level != "debug":
        yield (config.task, "tensor_list"), 'holds "", which is a part of every name: all tensors are saved'
    if section.bench_path is not None and config.level in ("debug", "L2"):
        yield (config.task, "bench_path"), f'has no effect at level "{config.level}"'
    if section.diff_nums != 1 and section.bench_path is None:
        yield (config.task, "diff_nums"), "has no effect without bench_path"


def _task(config: Config) -> Iterator[Problem]:
    allowed = TASKS_OF[config.framework]
    if config.task not in allowed:
        other = next(TITLE[name] for name in TASKS_OF if name != config.framework)
        usable = one_of(built("task", allowed, config.framework))
        yield ("task",), config.task, f"this task exists for {other} only; on {TITLE[config.framework]} it must be {usable}"


def _level(config: Config) -> Iterator[Problem]:
    task, level = config.task, config.level
    if level == "debug" and task not in ("statistics", "tensor"):
        yield ("level",), level, f'works with task "statistics" or "tensor" only, and the task is "{task}"'
    if task in ("overflow_check", "exception_dump") and level != "L2" and config.framework == "mindspore":
        yield ("level",), level, f'must be "L2" with task "{task}"'
    if task == "nan_check" and level != "L1":
        yield ("level",), level, 'must be "L1" with task "nan_check"'
    # As long as the level is not there at all, that is what is to be said, and not what it would need besides.
    unnamed = task in ("statistics", "tensor") and not config.section.list
    if level == "L2" and config.framework == "pytorch" and unnamed and _is_there(level, config.framework):
        yield (task, "list"), [], 'level "L2" needs the name of the API here, such as ["Functional.linear.0.forward"]'


def _is_there(level: str, framework: str) -> bool:
    return bool(built("level", (level,), framework))


def _async_dump(config: Config) -> Iterator[Problem]:
    if not config.async_dump:
        return
    loc: Loc = ("async_dump",)
    if config.task not in ("statistics", "tensor"):
        yield loc, True, f'works with task "statistics" or "tensor" only, and the task is "{config.task}"'
    elif config.level == "L2" and _is_there("L2", config.framework):
        yield loc, True, 'works at level "L0", "L1", "mix" or "debug" only, and the level is "L2"'
    if config.task == "tensor" and config.level != "debug" and not config.section.list:
        yield (
            (config.task, "list"),
            [],
            ("async_dump with task tensor keeps whole tensors in device memory until the step ends, so name here what is to be recorded"),
        )
    if config.section.bench_path is not None:
        yield (
            (config.task, "bench_path"),
            config.section.bench_path,
            "compares while the step runs, and async_dump has the values only when it ends; leave one of them out",
        )
    mode = config.section.summary_mode
    if mode == "md5" or (isinstance(mode, tuple) and "md5" in mode):
        others = '"statistics" or "xor"' if config.framework == "pytorch" else '"statistics"'
        yield (config.task, "summary_mode"), mode, f"async_dump cannot compute md5; use {others}, or set async_dump to false"


def _scope(config: Config) -> Iterator[Problem]:
    scope, level = config.section.scope, config.level
    loc: Loc = (config.task, "scope")
    if not scope or level == "debug" or (level == "L2" and config.framework == "mindspore"):
        return
    if level == "L2" and config.framework == "pytorch":
        if not _is_there(level, config.framework):
            return
        yield loc, scope, 'does not work at level "L2": name the API in "list", and leave scope out'
        return
    if len(scope) != 2:
        yield loc, scope, f"must hold exactly two names, the first and the last of the range, but holds {len(scope)}"
        return
    module = _MODULE_NAME[config.framework]
    kind = "Cell" if config.framework == "mindspore" else "Module"
    module_form = f"a module name such as {kind}.conv1.Conv2d.forward.0"
    api_form = "an API name such as Functional.relu.0.forward"
    for i, name in enumerate(scope):
        is_module, is_api = bool(module.fullmatch(name)), bool(_API_NAME.fullmatch(name))
        if level == "L0" and not is_module:
            yield (*loc, i), name, f'must be {module_form} at level "L0"{_full_name(name, module)}'
        elif level == "L1" and not is_api:
            yield (*loc, i), name, f'must be {api_form} at level "L1"{_full_name(name, _API_NAME)}'
        elif not (is_module or is_api):
            yield (*loc, i), name, f"must be {module_form}, or {api_form}{_full_name(name, module, _API_NAME)}"


def _full_name(name: str, *forms: re.Pattern[str]) -> str:
    """The full name that was probably meant, for a message: a direction or a number is missing, misspelled or in the wrong place."""
    *base, before, last = ("", *name.split("."))
    direction, number = "forward", "0"
    for part in (before, last):
        meant = get_close_matches(part, ("forward", "backward"), n=1, cutoff=0.8)
        if meant:
            direction = meant[0]
        elif part.isdecimal():
            number = part
        else:
            base.append(part)
    is_module = base[1:2] in (["Module"], ["Cell"])
    full = ".".join([*base[1:], direction, number] if is_module else [*base[1:], number, direction])
    complete = len(base) >= (4 if is_module else 3) and all(base[1:])
    fits = complete and any(form.fullmatch(full) for form in forms)
    return f'; did you mean "{full}"?' if fits and full != name else ""


def _nan_check(config: Config) -> Iterator[Problem]:
    mode = config.section.data_mode
    if config.task == "nan_check" and not mode.output:
        yield (config.task, "data_mode"), ["input"], 'task nan_check looks at outputs: add "output", or use ["all"]'


def _kernels_of_mindspore(config: Config) -> Iterator[Problem]:
    """MindSpore's own dump of kernels takes one of all, input and output."""
    section = config.section
    if config.framework != "mindspore" or config.level != "L2":
        return
    mode = section.data_mode
    if not (mode.forward and mode.backward):
        words = [word for word in ("forward", "backward") if getattr(mode, word)]
        reason = 'at level "L2" it must be one of ["all"], ["input"] and ["output"]: a kernel has no direction'
        yield (config.task, "data_mode"), words, reason


def _directories(config: Config) -> Iterator[Problem]:
    section = config.section
    if config.load is None or config.load.dump_after_load:
        reason = why_not_writable(config.dump_path)
        if reason:
            yield ("dump_path",), config.dump_path, reason
    if config.load is not None:
        reason = why_not_directory(config.load.path)
        if reason:
            yield ("load", "path"), config.load.path, reason
        elif config.load.dump_after_load and os.path.realpath(config.load.path) == os.path.realpath(config.dump_path):
            reason = 'is the same directory as "dump_path", so recording would overwrite what is loaded: record into another one'
            yield ("load", "path"), config.load.path, reason
    if config.ops_dir is not None:
        reason = why_not_directory(config.ops_dir)
        if reason:
            yield ("ops_dir",), config.ops_dir, reason
    if section.bench_path is not None:
        reason = why_not_directory(section.bench_path)
        if reason:
            yield (config.task, "bench_path"), section.bench_path, reason
    if config.task == "acc_check":
        reason = why_not_writable(section.error_data_path)
        if reason:
            yield (config.task, "error_data_path"), section.error_data_path, reason
