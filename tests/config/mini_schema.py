"""Just enough of JSON Schema to try ours on examples; an unknown keyword is an error, so that nothing is skipped in silence."""

from __future__ import annotations

import re
from typing import Any

_SILENT = {"$schema", "$defs", "title", "description", "examples", "default", "deprecated"}
_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def violations(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "$") -> list[str]:
    found: list[str] = []
    for keyword, wanted in schema.items():
        if keyword in _SILENT:
            continue
        found += [f"{path}{text}" for text in _CHECKS[keyword](value, wanted, schema, root)]
    return found


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, _TYPES[kind])


def _same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _below(value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [text for name, child in wanted.items() if name in value for text in violations(value[name], child, root, f".{name}")]


def _extra(value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    assert wanted is False
    return [f".{name}: unknown" for name in value if name not in schema["properties"]] if isinstance(value, dict) else []


def _items(value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    return [text for i, item in enumerate(value) for text in violations(item, wanted, root, f"[{i}]")] if isinstance(value, list) else []


def _ref(value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    return violations(value, root["$defs"][wanted.rpartition("/")[2]], root, "")


def _when(test: Any, text: str) -> Any:
    return lambda value, wanted, schema, root: [f": {text} {wanted}"] if test(value, wanted) else []


_CHECKS: dict[str, Any] = {
    "properties": _below,
    "additionalProperties": _extra,
    "items": _items,
    "$ref": _ref,
    "anyOf": lambda value, wanted, schema, root: [] if any(not violations(value, one, root) for one in wanted) else [": fits nothing"],
    "type": _when(lambda value, kind: not _is(value, kind), "not"),
    "enum": _when(lambda value, words: not any(_same(value, word) for word in words), "not among"),
    "const": _when(lambda value, word: not _same(value, word), "not"),
    "required": _when(lambda value, names: isinstance(value, dict) and not set(names) <= set(value), "needs"),
    "minimum": _when(lambda value, least: _is(value, "integer") and value < least, "below"),
    "maximum": _when(lambda value, most: _is(value, "integer") and value > most, "above"),
    "minItems": _when(lambda value, least: isinstance(value, list) and len(value) < least, "shorter than"),
    "minLength": _when(lambda value, least: isinstance(value, str) and len(value) < least, "shorter than"),
    "uniqueItems": _when(lambda value, _: isinstance(value, list) and any(item in value[:i] for i, item in enumerate(value)), "unique"),
    "pattern": _when(lambda value, text: isinstance(value, str) and not re.search(text, value), "does not match"),
}
