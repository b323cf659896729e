"""Reads the three files that say which functions are watched: the packaged ones, and those of the user's own directory over them.

- support_wrap_ops.yaml, `category: [names]`: a category that the user's file names is replaced by it or, where every name there begins
  with + or -, changed by it;
- custom_wrap_ops.yaml, `module: [names]`: the user's are added;
- builtin_ignore_ops.yaml, `prefix: {API: {input: ..., output: ...}}`: an API that the user's file names has the rules given there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from msprobe.config.paths import why_not_directory
from msprobe.config.values import nearest
from msprobe.errors import ConfigError
from msprobe.log import logger
from msprobe.pytorch.dump.api_dump.ignoring import Ignored

SUPPORT, CUSTOM, IGNORE = "support_wrap_ops.yaml", "custom_wrap_ops.yaml", "builtin_ignore_ops.yaml"
FILES = (SUPPORT, CUSTOM, IGNORE)
VARIABLE = "MSPROBE_OPS_DIR"
PREFIXES = {
    "functional": "Functional",
    "tensor": "Tensor",
    "torch": "Torch",
    "_VF": "VF",
    "aten": "Aten",
    "distributed": "Distributed",
    "npu_distributed": "Distributed",
    "torch_npu": "NPU",
    "mindspeed": "MindSpeed",
    "triton": "Triton",
}
"""Category of support_wrap_ops.yaml -> prefix of entry names."""

OPERATORS = "operators"
"""Category of the operators that extensions register with torch, as `{namespace}.{name}`; the namespace is the prefix."""

_PACKAGED = os.path.dirname(os.path.abspath(__file__))
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class OperationFiles:
    """What the files say.

    Attributes:
        watched: category -> names.
        custom: dotted name of a module -> names of functions in it.
        ignored: `{prefix}.{name}` -> what of its calls is left out.
        own: (category, name) of the names in support_wrap_ops.yaml that the user has written.
        own_rules: the keys of `ignored` that the user has written.
        source: the user's directory, "" without one.
    """

    watched: dict[str, list[str]]
    custom: dict[str, list[str]] = field(default_factory=dict)
    ignored: dict[str, Ignored] = field(default_factory=dict)
    own: frozenset[tuple[str, str]] = frozenset()
    own_rules: frozenset[str] = frozenset()
    source: str = ""


def read_operation_files(directory: str | None = None) -> OperationFiles:
    """The packaged files with those in the user's directory over them.

    Args:
        directory: the user's directory; None: the one that MSPROBE_OPS_DIR names, if any.

    Raises:
        ConfigError: the directory does not exist, or a file is not of the form it must have; one line for each problem.
    """
    problems: list[str] = []
    packaged = _packaged()
    chosen = directory or os.environ.get(VARIABLE) or ""
    own = _Files()
    if chosen:
        chosen = os.path.abspath(os.path.expanduser(chosen))
        reason = why_not_directory(chosen)
        if reason:
            raise ConfigError(f"{'ops_dir' if directory else VARIABLE} is {chosen!r}: {reason}")
        own = _read(chosen, problems)
        _tell_other_files(chosen)
    watched, written = _merge_watched(packaged.watched, own.watched, os.path.join(chosen, SUPPORT), problems)
    if problems:
        raise ConfigError("\n".join(problems))
    custom = {module: list(names) for module, names in packaged.custom.items()}
    for module, names in own.custom.items():
        custom[module] = list(dict.fromkeys([*custom.get(module, ()), *names]))
    return OperationFiles(watched, custom, {**packaged.ignored, **own.ignored}, frozenset(written), frozenset(own.ignored), chosen)


def _tell_other_files(directory: str) -> None:
    """A file whose name is nearly right would be passed over without a word."""
    there = [name for name in sorted(os.listdir(directory)) if name.endswith((".yaml", ".yml"))]
    for name in there:
        close = nearest(name, FILES)
        if name not in FILES and close is not None and close not in there:
            logger.warning(f"{os.path.join(directory, name)} is not read; did you mean {close}?")
    if not any(name in FILES for name in there):
        logger.warning(f"{directory} holds none of {', '.join(FILES)}: the packaged ones hold")


class _Files:
    def __init__(self) -> None:
        self.watched: dict[str, list[str]] = {}
        self.custom: dict[str, list[str]] = {}
        self.ignored: dict[str, Ignored] = {}


@cache
def _packaged() -> _Files:
    """The packaged files: they do not change while the process runs, and to parse them takes longer than all else here."""
    problems: list[str] = []
    found = _read(_PACKAGED, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def _read(directory: str, problems: list[str]) -> _Files:
    found = _Files()
    found.watched = _names(os.path.join(directory, SUPPORT), problems, _why_no_category)
    found.custom = _names(os.path.join(directory, CUSTOM), problems, _why_no_module, _why_no_function)
    found.ignored = _rules(os.path.join(directory, IGNORE), problems)
    return found


# --- YAML -----------------------------------------------------------------------------------------------------------------------------
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A key that stands twice is an error: of two lists one would be lost."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f'the key "{twice}" stands twice', node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _load(path: str, problems: list[str]) -> dict[Any, Any]:
    """The mapping in the file; empty where there is no such file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            loaded = yaml.load(file, Loader=_Loader)
    except FileNotFoundError:
        return {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        problems.append(f"{path} is no valid YAML{where}: {getattr(error, 'problem', None) or error}")
        return {}
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        problems.append(f"{path} cannot be read: {'it is nested too deep' if isinstance(error, RecursionError) else reason}")
        return {}
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        problems.append(f"{path} holds {_kind(loaded)}: it must hold keys with lists below them")
        return {}
    return loaded


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return f"{str(value).lower().replace('none', 'nothing')}"
    if isinstance(value, dict | list):
        return "keys with values" if isinstance(value, dict) else "a list"
    return f"{value!r:.60}"


def _why_no_category(key: str) -> str:
    known = (*PREFIXES, OPERATORS)
    if key in known:
        return ""
    close = nearest(key, known)
    return "is no category" + (f"; did you mean {close}?" if close else f"; known are {', '.join(known)}")


def _why_no_module(key: str) -> str:
    return "" if _MODULE.fullmatch(key) else "is no name of a module, such as module_a.submodule"


def _why_no_function(name: str) -> str:
    return "" if name.isidentifier() else "is no name of a function"


def _names(
    path: str, problems: list[str], why_no_key: Callable[[str], str], why_no_name: Callable[[str], str] = lambda name: ""
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in _load(path, problems).items():
        reason = why_no_key(key) if isinstance(key, str) else "must be text; put it in quotes"
        if reason:
            problems.append(f'{path}: "{key}" {reason}')
            continue
        if value is None:
            value = []
        if not isinstance(value, list):
            problems.append(f'{path}: "{key}" is {_kind(value)}: it must be a list, each name on a line of its own behind "- "')
            continue
        for item in value:
            if not isinstance(item, str) or not item.strip():
                problems.append(f'{path}: "{key}" holds {_kind(item)}: it must be a name; if it is one, put it in quotes')
            elif why_no_name(item):
                problems.append(f'{path}: "{key}" holds "{item}", which {why_no_name(item)}')
        found[key] = [item for item in value if isinstance(item, str)]
    return found


def _merge_watched(
    packaged: Mapping[str, list[str]], own: Mapping[str, list[str]], path: str, problems: list[str]
) -> tuple[dict[str, list[str]], set[tuple[str, str]]]:
    """The categories with the user's over them, and what of them the user has written."""
    merged = {category: list(names) for category, names in packaged.items()}
    written: set[tuple[str, str]] = set()
    for category, names in own.items():
        signed = [name for name in names if name[0] in "+-"]
        if signed and len(signed) < len(names):
            plain = next(name for name in names if name[0] not in "+-")
            problems.append(
                f'{path}: "{category}" holds "{plain}" and "{signed[0]}": either all names begin with + or -, which changes the packaged '
                "list, or none, which replaces it"
            )
            continue
        if not signed:
            merged[category] = list(dict.fromkeys(names))
            written |= {(category, name) for name in names}
            continue
        there = merged.setdefault(category, [])
        for name in names:
            sign, name = name[0], name[1:].strip()
            if sign == "+" and name not in there:
                there.append(name)
                written.add((category, name))
            elif sign == "-" and name in there:
                there.remove(name)
            elif sign == "-":
                close = nearest(name, tuple(there))
                logger.warning(f'{path}: "{category}" has no "{name}" to take out' + (f', did you mean "{close}"?' if close else ""))
    return merged, written


# --- what is left out -----------------------------------------------------------------------------------------------------------------
def _rules(path: str, problems: list[str]) -> dict[str, Ignored]:
    found: dict[str, Ignored] = {}
    for prefix, apis in _load(path, problems).items():
        if not isinstance(prefix, str):
            problems.append(f'{path}: "{prefix}" must be text; put it in quotes')
            continue
        if apis is None:
            continue
        if not isinstance(apis, dict):
            problems.append(f'{path}: "{prefix}" is {_kind(apis)}: below a prefix stand names of APIs with "input" or "output"')
            continue
        for name, rule in apis.items():
            where = f'{path}: "{prefix}"."{name}"'
            if rule is not None and not isinstance(rule, dict):
                problems.append(f'{where} is {_kind(rule)}: it must have "input" or "output" below it')
                continue
            found[f"{prefix}.{name}"] = _rule(rule or {}, where, problems)
    return found


def _rule(rule: dict[Any, Any], where: str, problems: list[str]) -> Ignored:
    for key in rule:
        if key not in ("input", "output"):
            problems.append(f'{where}."{key}" is not known: only "input" and "output" can be left out')
    wrong = len(problems)
    inputs = _positions(rule.get("input"), f'{where}."input"', problems, names=True)
    outputs = _positions(rule.get("output"), f'{where}."output"', problems, names=False)
    if len(problems) > wrong:
        return Ignored()
    return Ignored(
        all_inputs=inputs is None,
        inputs=frozenset(item for item in inputs or () if isinstance(item, int)),
        keywords=frozenset(item for item in inputs or () if isinstance(item, str)),
        all_outputs=outputs is None,
        outputs=frozenset(item for item in outputs or () if isinstance(item, int)),
    )


def _positions(value: Any, where: str, problems: list[str], names: bool) -> list[int | str] | None:
    """The positions and names listed; None for all."""
    allowed = "positions counted from 0" + (" and names of keyword arguments" if names else "")
    if value == "all":
        return None
    if value is None:
        return []
    if not isinstance(value, list):
        problems.append(f"{where} is {_kind(value)}: it must be all, or a list of {allowed}, such as [0]")
        return []
    for item in value:
        fits = (isinstance(item, int) and not isinstance(item, bool) and item >= 0) or (names and isinstance(item, str))
        if not fits:
            problems.append(f"{where} holds {_kind(item)}: allowed are {allowed}")
    return value
