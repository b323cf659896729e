"""`load_config`: read, sort out, check, combine with the arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from pydantic import BaseModel, ValidationError

from msprobe.config.available import not_yet
from msprobe.config.file_model import SECTIONS, ConfigFile, LoadSection
from msprobe.config.known_names import OTHER_FRAMEWORK, keep_known, keep_known_in_section
from msprobe.config.messages import Loc, Place, printable, show, validation_problems
from msprobe.config.reading import read_object
from msprobe.config.result import Config, DataMode, LoadConfig, Section
from msprobe.config.rules import broken_rules, structure_level, useless_fields
from msprobe.config.values import nearest, one_of
from msprobe.errors import ConfigError
from msprobe.log import logger

PACKAGED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "config.json")
FRAMEWORKS = ("pytorch", "mindspore")
_UNUSED_DUMP_PATH = "./dump_path"


def load_config(
    config_path: str | os.PathLike[str] | None = None,
    *,
    framework: str = "pytorch",
    task: str | None = None,
    dump_path: str | os.PathLike[str] | None = None,
    level: str | None = None,
    step: Iterable[int | str] | None = None,
    rank: Iterable[int | str] | None = None,
    told: bool = False,
) -> Config:
    """Reads config.json and checks it.

    Arguments that are given (not None) replace what the file says; what neither says has its documented default. Without
    `config_path` the packaged config.json is read. Fields without effect are reported on the logger `msprobe`, unless they were `told`
    before, in another process of the same run.

    Raises ConfigError, one line per problem: where, the value, what is allowed.
    """
    warnings: list[str] = []
    try:
        return _load(config_path, framework, _arguments(task, dump_path, level, step, rank), warnings.append)
    finally:
        for text in [] if told else warnings:
            logger.warning("%s", text)


def _arguments(task: Any, dump_path: Any, level: Any, step: Any, rank: Any) -> dict[str, Any]:
    """The given arguments, in the types a file has; an empty string counts as not given."""
    if isinstance(dump_path, os.PathLike):
        dump_path = os.fspath(dump_path)
    if isinstance(step, (tuple, range)):
        step = list(step)
    given = {"task": task, "dump_path": dump_path, "level": level, "step": step, "rank": rank}
    return {name: value for name, value in given.items() if not (value is None or (isinstance(value, str) and value == ""))}


def _load(config_path: Any, framework: str, arguments: dict[str, Any], warn: Callable[[str], None]) -> Config:
    if framework not in FRAMEWORKS:
        hint = nearest(framework, FRAMEWORKS) if isinstance(framework, str) else None
        did_you_mean = f'; did you mean "{hint}"?' if hint else ""
        raise ConfigError(f'argument "framework" is {show(framework)}: must be {one_of(FRAMEWORKS)}{did_you_mean}')
    file = _file_name(config_path)
    place = Place("packaged config.json" if config_path is None else printable(file), frozenset((*arguments, "framework")))
    data = {**read_object(file, warn), **arguments}
    if config_path is None:  # the packaged file is for all frameworks: nobody has asked for what another one has
        data = {name: value for name, value in data.items() if (name,) not in OTHER_FRAMEWORK[framework]}
    wanted_task = data.get("task") or "statistics"

    known = keep_known(data, framework, wanted_task, place, warn)
    for name in (*SECTIONS, "load"):
        if name in known:
            known[name] = keep_known_in_section(name, known[name], framework, wanted_task, place, warn)
    problems: list[str] = []
    sections = {name: known.pop(name) for name in SECTIONS if name in known}
    context = {"framework": framework}
    top = _validate(ConfigFile, known, context, place, (), problems)
    section: BaseModel | None = None
    for name, value in sections.items():
        found: list[str] = []
        model = _validate(SECTIONS[name], {} if value is None else value, {**context, "section": name}, place, (name,), found)
        if name == wanted_task:
            section = model
            problems += found
        else:
            for text in found:
                warn(f"{text} (section not used by task {show(wanted_task)})")
    if top is None or problems:
        raise ConfigError("\n".join(problems))

    assert isinstance(top, ConfigFile)
    config = _combine(top, section, framework, file, place, warn)
    for loc, remark in useless_fields(config):
        warn(place.remark(loc, remark))
    written = known | sections
    broken = list(broken_rules(config))
    wrong_places = {loc for loc, _, _ in broken}  # what is wrong anyway need not be told that it is not built yet either
    for loc, value, reason in chain(broken, (item for item in not_yet(config) if item[0] not in wrong_places)):
        problems.append(place.problem(loc, _raw(written, loc, value), reason))
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def _file_name(config_path: Any) -> str:
    if config_path is None:
        return PACKAGED
    try:
        path = os.fspath(config_path)
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise ConfigError(f'config_path is {show(config_path)}: must be the path of a configuration file, for example "./config.json"')
    return os.path.expanduser(path)


def _validate(
    model: type[BaseModel], data: Any, context: dict[str, Any], place: Place, prefix: Loc, problems: list[str]
) -> BaseModel | None:
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        problems += validation_problems(error, model, place, prefix)
        return None


def _raw(data: dict[str, Any], loc: Loc, otherwise: Any) -> Any:
    """The value as the user wrote it."""
    found: Any = data
    for part in loc:
        if not isinstance(found, dict) or part not in found:
            return otherwise
        found = found[part]
    return found


def _combine(top: ConfigFile, section: BaseModel | None, framework: str, file: str, place: Place, warn: Callable[[str], None]) -> Config:
    """The result, with null and "" replaced by what they mean."""
    task, level = top.task or "statistics", top.level or "L1"
    used_level = structure_level(task, level)
    if used_level != level and "level" in top.model_fields_set:
        warn(place.remark(("level",), f'is {show(level)}: task structure works at level "L0" or "mix", "mix" is used'))
    load = _load_section(top.load)
    if top.dump_path:
        dump_path = os.path.expanduser(top.dump_path)
    elif load is not None and not load.dump_after_load:
        dump_path = _UNUSED_DUMP_PATH
    else:
        state = "is missing" if top.dump_path is None else f"is {show(top.dump_path)}"
        raise ConfigError(f'{place.of(("dump_path",))} {state}: it is required, for example "dump_path": "./dump_path"')
    return Config(
        framework=framework,
        source=file,
        task=task,
        dump_path=dump_path,
        level=used_level,
        rank=_ids(top.rank),
        step=_ids(top.step),
        async_dump=top.async_dump,
        dump_enable=top.dump_enable,
        extra_info=top.extra_info,
        precision=top.precision,
        risk_level=top.risk_level or "ALL",
        load=load,
        section=_section(section),
        ops_dir=os.path.expanduser(top.ops_dir) if top.ops_dir else None,
    )


def _section(section: BaseModel | None) -> Section:
    values = {} if section is None else {name: value for name, value in section if value is not None}
    if "data_mode" in values:
        values["data_mode"] = DataMode.from_names(values["data_mode"])
    for name in ("bench_path", "error_data_path"):
        if name in values:
            values[name] = os.path.expanduser(values[name])
    return Section(**values)


def _load_section(load: LoadSection | None) -> LoadConfig | None:
    if load is None:
        return None
    return LoadConfig(
        path=os.path.expanduser(load.path),
        modules=load.modules,
        step=_ids(load.step),
        rank=_ids(load.rank),
        dump_after_load=load.dump_after_load,
        cast=load.cast,
        source_step=load.source_step,
        source_rank=load.source_rank,
    )


def _ids(ranges: tuple[range, ...] | None) -> frozenset[int]:
    return frozenset(chain.from_iterable(ranges or ()))
