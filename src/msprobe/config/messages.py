"""From a problem to one line of text: where, which value, what is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

Loc = tuple[int | str, ...]
_MISSING = object()
_LONGEST_VALUE = 100


@dataclass(frozen=True)
class Place:
    """Where values came from: a file, some of them replaced by arguments of the call."""

    file: str
    arguments: frozenset[str] = frozenset()

    def of(self, loc: Loc) -> str:
        """`config.json: "tensor"."list"[0]`, or `argument "step"[1]` where an argument has replaced the file's value."""
        text = "".join(f"[{part}]" if isinstance(part, int) else f'."{part}"' for part in loc).removeprefix(".")
        return f"argument {text}" if loc[:1] and loc[0] in self.arguments else f"{self.file}: {text}"

    def problem(self, loc: Loc, value: Any, reason: str) -> str:
        """The line for a wrong value."""
        return f"{self.of(loc)} is {show(value)}: {reason}"

    def remark(self, loc: Loc, text: str) -> str:
        """The line for a warning about a field."""
        return f"{self.of(loc)} {text}"


def printable(text: str) -> str:
    """`text` on one line that every UTF-8 log can take."""
    text = "".join(c if c.isprintable() or 0xD800 <= ord(c) <= 0xDFFF else c.encode("unicode_escape").decode() for c in text)
    return text.encode("utf-8", "backslashreplace").decode()


def show(value: Any) -> str:
    """The value as it would stand in the file, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        try:
            text = repr(value)
        except Exception:  # a user's own __repr__ may do anything
            text = f"<{type(value).__name__}>"
    text = printable(text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def validation_problems(error: ValidationError, model: type[BaseModel], place: Place, prefix: Loc = ()) -> list[str]:
    """One line per problem that pydantic found while it read `model`, whose place in the file is `prefix`."""
    lines = []
    for item in error.errors(include_url=False):
        loc: Loc = item["loc"]
        example = _example(model, loc)
        kind = item["type"]
        if kind == "missing":
            hint = f", for example {show(example)}" if example is not _MISSING else ""
            lines.append(f"{place.of(prefix + loc)} is missing: it is required{hint}")
            continue
        lines.append(place.problem(prefix + loc, item["input"], _reason(kind, item, example)))
    return lines


def _reason(kind: str, item: Mapping[str, Any], example: Any) -> str:
    for_example = f", for example {show(example)}" if example is not _MISSING else ""
    if kind == "msprobe":
        return str(item["ctx"]["reason"])
    if kind == "tuple_type":
        return f"must be a list{for_example}"
    if kind == "string_type":
        return f"must be a string{for_example}"
    if kind == "bool_type":
        return "must be true or false"
    if kind == "model_type":
        return f"must be an object{for_example}"
    return str(item["msg"])


def _example(model: type[BaseModel], loc: Loc) -> Any:
    """The documented example of the field at `loc`; of an element, none."""
    found: Any = _MISSING
    for part in loc:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        if field is None:
            return _MISSING
        found = field.examples[0] if field.examples else _MISSING
        inner = next((kind for kind in _models(field.annotation)), None)
        model = inner or BaseModel
    return found


def _models(annotation: Any) -> Iterable[type[BaseModel]]:
    for kind in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield kind
