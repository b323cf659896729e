"""The kinds of values a field can have: how each is checked and how an editor sees it (JSON Schema)."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StrictStr, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

TASKS = ("statistics", "tensor", "structure", "acc_check", "nan_check", "overflow_check", "exception_dump")
TASKS_OF = {
    "pytorch": tuple(task for task in TASKS if task not in ("overflow_check", "exception_dump")),
    "mindspore": tuple(task for task in TASKS if task not in ("acc_check", "nan_check")),
}
LEVELS = ("L0", "L1", "L2", "mix", "debug")
PRECISIONS = ("high", "low")
RISK_LEVELS = ("ALL", "CORE", "FOCUS")
DATA_MODES = ("all", "forward", "backward", "input", "output")
SUMMARY_MODES = ("statistics", "md5", "xor")
STATISTICS_ITEMS = (
    "max", "min", "mean", "l2norm", "count", "negative zero count", "zero count", "positive zero count",
    "nan count", "negative inf count", "positive inf count", "hash", "md5",
)  # fmt: skip
LARGEST_ID = 1_000_000

_RANGE = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")


def wrong(reason: str) -> PydanticCustomError:
    """An error whose text is ours; `reason` follows `<field> is <value>: ` in the final message."""
    return PydanticCustomError("msprobe", "{reason}", {"reason": reason})


def one_of(values: tuple[str, ...]) -> str:
    """`"a", "b" or "c"`, for messages."""
    quoted = [f'"{value}"' for value in values]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def nearest(word: str, values: tuple[str, ...]) -> str | None:
    """The one of `values` that was probably meant by `word`, upper and lower case ignored."""
    folded = {value.lower(): value for value in reversed(values)}
    close = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def _check_choice(value: Any, values: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in values:
        return value
    hint = nearest(value, values) if isinstance(value, str) else None
    raise wrong(f"must be {one_of(values)}" + (f'; did you mean "{hint}"?' if hint else ""))


def _usable(field: str) -> Callable[[Any, ValidationInfo], str | None]:
    """A check for a task or a level; the empty string counts as not set (None). What is known and cannot be used passes: it is refused
    later, with the reason. A message names what can be used on the framework."""

    def check(value: Any, info: ValidationInfo) -> str | None:
        from msprobe.config.available import built  # imports this module

        framework = (info.context or {}).get("framework", "pytorch")
        known, there = (TASKS, TASKS_OF[framework]) if field == "task" else (LEVELS, LEVELS)
        if value is None or value == "":
            return None
        return value if isinstance(value, str) and value in known else _check_choice(value, built(field, there, framework))

    return check


def _choice(values: tuple[str, ...], *, blank: bool = False) -> Callable[[Any], str | None]:
    """A check for one word of `values`; with `blank`, the empty string counts as not set (None)."""

    def check(value: Any) -> str | None:
        if value is None and blank:
            return None
        return None if blank and value == "" else _check_choice(value, values)

    return check


def _words(values: tuple[str, ...], *, blank: bool = False) -> WithJsonSchema:
    return WithJsonSchema({"enum": [*values, "", None] if blank else [*values]})


# These five may be empty: "" and null mean "not set".
Task: TypeAlias = Annotated[str | None, PlainValidator(_usable("task")), _words(TASKS, blank=True)]
Level: TypeAlias = Annotated[str | None, PlainValidator(_usable("level")), _words(LEVELS, blank=True)]
RiskLevel: TypeAlias = Annotated[str | None, PlainValidator(_choice(RISK_LEVELS, blank=True)), _words(RISK_LEVELS, blank=True)]
Precision: TypeAlias = Annotated[str, PlainValidator(_choice(PRECISIONS)), _words(PRECISIONS)]
Device: TypeAlias = Annotated[str, PlainValidator(_choice(("device", "host"))), _words(("device", "host"))]
FileFormat: TypeAlias = Annotated[str, PlainValidator(_choice(("bin", "npy"))), _words(("bin", "npy"))]
CheckMode: TypeAlias = Annotated[str, PlainValidator(_choice(("aicore", "atomic", "all"))), _words(("aicore", "atomic", "all"))]


def parse_ids(value: Any) -> range:
    """One element of `rank` or `step`: 3, "3", "4-6" or "4 - 6"; both ends belong to the range.

    Raises PydanticCustomError for anything else: booleans, floats, negative ids, ids above 1,000,000, reversed ranges.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= LARGEST_ID:
            raise wrong(f"must be from 0 to {LARGEST_ID}")
        return range(value, value + 1)
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise wrong('must be a whole number such as 3, or a range such as "4-6"')
    first, last = (_bounded(text) for text in (found[1], found[2] or found[1]))
    if max(first, last) > LARGEST_ID:
        raise wrong(f"must be from 0 to {LARGEST_ID}")
    if first > last:
        raise wrong(f'the range is reversed, write "{last}-{first}"')
    return range(first, last + 1)


def _bounded(digits: str) -> int:
    """The number, or something above the limit where there are too many digits for int() to accept."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= 7 else LARGEST_ID + 1


_ID_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": LARGEST_ID},
        {"type": "string", "pattern": r"^\s*[0-9]+\s*(-\s*[0-9]+\s*)?$"},
    ]
}


def typed_numbers(text: str) -> str:
    """What was typed as numbers, with the digits, commas and signs of a full-width keyboard as the plain ones that they stand for."""
    return unicodedata.normalize("NFKC", text.replace("\u3001", ","))


Ids: TypeAlias = tuple[Annotated[range, PlainValidator(parse_ids), WithJsonSchema(_ID_SCHEMA)], ...]
Names: TypeAlias = tuple[StrictStr, ...]


def _source_id(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_ID):
        return value
    raise wrong(f"must be one whole number from 0 to {LARGEST_ID}")


SourceId: TypeAlias = Annotated[
    int | None,
    PlainValidator(_source_id),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": LARGEST_ID}, {"type": "null"}]}),
]


def _not_all_with_others(modes: tuple[str, ...]) -> tuple[str, ...]:
    if "all" in modes and set(modes) != {"all"}:
        raise wrong('"all" cannot be combined with other words')
    return modes


DataModes: TypeAlias = Annotated[
    tuple[Annotated[str, PlainValidator(_choice(DATA_MODES)), _words(DATA_MODES)], ...], AfterValidator(_not_all_with_others)
]


def _summary_mode(value: Any, info: ValidationInfo) -> str | tuple[str, ...] | None:
    """A word, or on MindSpore a list of statistics; `statistics` sections only take the list."""
    context = info.context or {}
    mindspore = context.get("framework") == "mindspore"
    words = ("statistics", "md5") if mindspore else SUMMARY_MODES
    if value is None or value == "":
        return None
    if not isinstance(value, list):
        if mindspore and value == "xor":
            raise wrong(f"exists for PyTorch only; on MindSpore it must be {one_of(words)}")
        return _check_choice(value, words)
    if not mindspore:
        raise wrong(f"a list of statistics exists for MindSpore static graphs only; on PyTorch it must be {one_of(words)}")
    if context.get("section") != "statistics":
        raise wrong(f'a list of statistics belongs to task "statistics"; here it must be {one_of(words)}')
    if not value:
        raise wrong(f"must name at least one of {one_of(STATISTICS_ITEMS)}")
    for item in value:
        if item not in STATISTICS_ITEMS:
            raise wrong(f"its elements must be {one_of(STATISTICS_ITEMS)}")
    return tuple(value)


SummaryMode: TypeAlias = Annotated[
    str | tuple[str, ...] | None,
    PlainValidator(_summary_mode),
    WithJsonSchema(
        {"anyOf": [{"enum": [*SUMMARY_MODES, "", None]}, {"type": "array", "minItems": 1, "items": {"enum": list(STATISTICS_ITEMS)}}]}
    ),
]


def _diff_nums(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and (value == -1 or value > 0):
        return value
    raise wrong("must be a whole number of 1 or more, or -1 for no limit")


DiffNums: TypeAlias = Annotated[
    int, PlainValidator(_diff_nums), WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": -1}]})
]

_MODULE_CALL = re.compile(r"Module\..+\.forward\.(0|[1-9][0-9]*)")
_OF_A_FILE = re.compile(r"(Module\..+\.forward\.[0-9]+)(\.(?:input|kwargs|output|parameters)\..+)")


def _module_call(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong("must be a string")
    if ".backward." in value:
        raise wrong("only inputs of forward calls can be loaded, the name must not contain .backward.")
    if not value.startswith("Module."):
        raise wrong('must start with "Module."')
    if not _MODULE_CALL.fullmatch(value):
        file = _OF_A_FILE.fullmatch(value)
        hint = f'; leave out "{file.group(2)}"' if file else "; without zeros before it" if re.search(r"\.forward\.0[0-9]+$", value) else ""
        raise wrong(f'must end with ".forward.N", N being the number of the call, counted from 0{hint}')
    return value


def _non_empty_unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise wrong("must name at least one module call; an empty list does not mean all")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise wrong(f'names "{name}" twice')
        seen.add(name)
    return names


ModuleCalls: TypeAlias = Annotated[
    tuple[Annotated[str, PlainValidator(_module_call)], ...],
    AfterValidator(_non_empty_unique),
    WithJsonSchema(
        {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"type": "string", "pattern": r"^Module\..+\.forward\.(0|[1-9][0-9]*)$"},
        }
    ),
]


def _path(value: Any) -> Any:
    if value == "":
        raise wrong("must be the path of a directory, not an empty string")
    return value


# The length is for the schema; an empty string never gets that far.
Path: TypeAlias = Annotated[StrictStr, Field(min_length=1), BeforeValidator(_path)]
