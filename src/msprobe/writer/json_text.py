"""Records to JSON text: what `json.dumps(document, indent=depth)` would write, at a fraction of its cost.

A document is written piece by piece, so what is made here are *members*: the text between the braces of an object that lies `depth`
levels deep, from the newline before the first key to the last value. The encoders indent by nesting, so the object is encoded inside as
many dummy objects and the outside is cut off. Spelling differs from json's in small exponents only (`1e-7` for `1e-07`).

orjson is several times faster than ujson, but writes null for NaN and infinities, which the format has: a text with a null in it is made
again by ujson.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import ujson

from msprobe.contain import let_through

# Deeper than any honest record, shallower than every encoder's own limit.
_MAX_DEPTH = 400
_HEAD = {1: len("{"), 2: len('{\n  "": {')}
_TAIL = {1: len("\n}"), 2: len("\n  }\n}")}
_FAST = orjson.OPT_INDENT_2 | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_orjson = orjson.dumps

_INDENTED: dict[int, dict[str, Any]] = {n: {"indent": n, "ensure_ascii": True, "escape_forward_slashes": False} for n in (1, 2)}

_encode: Callable[..., None] | None = None
try:
    from msprobe.writer._entry import encode_entries as _encode
    from msprobe.writer._entry import unflushed as _unflushed
except ImportError:  # no compiler when msprobe was installed

    def _unflushed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        return function(*args, **kwargs)


Problem = Callable[[str], None]


def members(items: dict[str, Any], depth: int, problem: Problem, ordinary: bool = False) -> bytes:
    """The members of an object `depth` (1 or 2) levels deep, indented by as much; b"" for no items. ASCII. Never raises for bad values.

    Values that JSON has no spelling for become null, and `problem` is called with the key and the reason.

    Args:
        items: the members.
        depth: 1 or 2.
        problem: takes what could not be written.
        ordinary: the caller knows that there is no NaN and no infinite number.
    """
    if not items:
        return b""
    try:
        if depth == 2:
            text = _orjson({"": items}, None, _FAST)
            if text.isascii() and (ordinary or b"null" not in text):
                return text[_HEAD[2] : -_TAIL[2]]
        return _cut(_fast(_wrap(items, depth), depth), depth)
    except Exception as caught:
        let_through(caught)
        return b",".join(_member(key, value, depth, problem) for key, value in items.items())


def encode_in_c(entries: list[Any]) -> None:
    """Make the text of those of the entries that are straightforward; see `_entry.encode_entries`."""
    if _encode is not None:
        _encode(entries, _orjson, _FAST, _HEAD[2], _TAIL[2])


def document(value: Any, problem: Problem) -> str:
    """A whole document, as `json.dumps(value, indent=1)`."""
    try:
        return _fast(value, 1)
    except Exception as caught:
        let_through(caught)
        return _fast(_plain(value, 0, problem, "the document"), 1)


def parse(text: str) -> Any:
    """What `text` says; raises ValueError."""
    try:
        return ujson.loads(text)
    except (ValueError, RecursionError):
        return json.loads(text)


def _fast(value: Any, indent: int) -> str:
    text: str = _unflushed(ujson.dumps, (value,), _INDENTED[indent])
    return text.replace("\x7f", "\\u007f")  # json escapes this one too


def _wrap(items: dict[str, Any], depth: int) -> dict[str, Any]:
    return items if depth == 1 else {"": items}


def _cut(text: str, depth: int) -> bytes:
    return text[_HEAD[depth] : -_TAIL[depth]].encode("ascii")


def _member(key: str, value: Any, depth: int, problem: Problem) -> bytes:
    if not isinstance(key, str):
        key = str(key)
    try:
        return _cut(_fast(_wrap({key: value}, depth), depth), depth)
    except Exception as caught:
        let_through(caught)
    try:
        return _cut(_fast(_wrap({key: _plain(value, 0, problem, key)}, depth), depth), depth)
    except Exception as failure:
        let_through(failure)
        problem(f"{key}: cannot be written as JSON ({type(failure).__name__}: {failure})")
        return _cut(_fast(_wrap({key: {"error": f"cannot be written as JSON: {type(failure).__name__}"}}, depth), depth), depth)


def _plain(value: Any, depth: int, problem: Problem, where: str) -> Any:
    """A copy of `value` of plain JSON types only."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth >= _MAX_DEPTH:
        problem(f"{where}: nested deeper than {_MAX_DEPTH} levels, or inside itself; cut off there")
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item, depth + 1, problem, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1, problem, where) for item in value]
    problem(f"{where}: a {type(value).__module__}.{type(value).__qualname__} has no JSON form; null written instead")
    return None
