"""Records to text."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.writer import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=6), inner, max_size=4),
    max_leaves=25,
)


def none(reason: str) -> None:
    pytest.fail(reason)


def whole(items: dict[str, Any], depth: int, problem: Any = none) -> str:
    text = json_text.members(items, depth, problem).decode("ascii")
    inside = text + "\n" + "  " * (depth - 1) if text else ""
    return "{" + inside + "}" if depth == 1 else '{\n  "data": {' + inside + "}\n}"


def normal(text: str) -> str:
    """json's own spelling of what `text` says."""
    return json.dumps(json.loads(text), indent=1)


@given(st.dictionaries(st.text(st.characters(), max_size=8), VALUES, max_size=5), st.sampled_from([1, 2]))
def test_members_are_those_of_json(items: dict[str, Any], depth: int) -> None:
    expected = json.dumps(items if depth == 1 else {"data": items}, indent=1)
    assert normal(whole(items, depth)) == normal(expected)


LEAVES = st.integers() | st.none() | st.booleans() | st.text('aé模"\\\n/<', max_size=5)


@given(st.dictionaries(st.text(max_size=8), st.lists(LEAVES), max_size=5))
def test_layout_is_that_of_json_to_the_byte(items: dict[str, Any]) -> None:
    for depth in (1, 2):
        assert whole(items, depth) == json.dumps(items if depth == 1 else {"data": items}, indent=depth)


def test_documents() -> None:
    for value in ({}, [], {"a": {}, "b": []}, {"path": "a/b é", "none": None}):
        assert json_text.document(value, none) == json.dumps(value, indent=1)


def test_subnormal_numbers_where_the_user_has_them_flushed() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("msprobe.writer._entry", exc_type=ImportError)
    tiny = np.array([5e-324])
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormal numbers")
    try:
        texts = [json_text.members({"a": [tiny.item(), math.inf, None]}, depth, none) for depth in (1, 2)]
        texts.append(json_text.document([tiny.item(), math.nan], none).encode())
        still_flushed = (torch.tensor(tiny) * 1).tolist()
    finally:
        torch.set_flush_denormal(False)
    assert all(b"5e-324" in text for text in texts), texts
    assert still_flushed == [0.0]


def test_numbers_outside_json() -> None:
    text = json_text.members({"x": [math.nan, math.inf, -math.inf, -0.0, 2**70, 5e-324, 0.1]}, 1, none)
    assert text == b'\n "x": [\n  NaN,\n  Infinity,\n  -Infinity,\n  -0.0,\n  1180591620717411303424,\n  5e-324,\n  0.1\n ]'
    for number in (math.nan, math.inf, -math.inf):
        assert json_text.members({"x": {"y": [1, number]}}, 2, none) == (
            f'\n    "x": {{\n      "y": [\n        1,\n        {json.dumps(number)}\n      ]\n    }}'.encode()
        )


def test_subclasses() -> None:
    class Color(IntEnum):
        RED = 3

    items = {"a": Color.RED, "b": np.float64(1.5), "c": np.str_("x"), "d": OrderedDict(y=1), "e": (1, (2,)), "f": True}
    assert json.loads(whole(items, 2))["data"] == {"a": 3, "b": 1.5, "c": "x", "d": {"y": 1}, "e": [1, [2]], "f": True}


class Unfriendly:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize("value", [1 + 2j, b"bytes", {1, 2}, object(), np.float32(1), np.arange(3), len, Unfriendly()])
def test_what_json_cannot_say_becomes_null_and_is_told(value: Any) -> None:
    problems: list[str] = []
    items = {"good": [1], "bad": {"x": [value, 2], "y": 3}, "fine": None}
    assert json.loads(whole(items, 2, problems.append))["data"] == {"good": [1], "bad": {"x": [None, 2], "y": 3}, "fine": None}
    assert len(problems) == 1
    assert problems[0].startswith("bad: a ")
    assert "null written instead" in problems[0]


def test_keys_that_are_no_texts() -> None:
    problems: list[str] = []
    items = {"a": {1: 2, None: 3, 1.5: 4, (1, 2): 5}, 7: 8}
    assert json.loads(whole(items, 2, problems.append))["data"] == {"a": {"1": 2, "null": 3, "1.5": 4, "(1, 2)": 5}, "7": 8}
    broken = whole({"a": {Unfriendly(): 1}, "b": 2}, 2, problems.append)
    assert json.loads(broken)["data"]["b"] == 2
    assert any("cannot be written" in problem for problem in problems)


def test_values_inside_themselves_and_very_deep_ones() -> None:
    problems: list[str] = []
    loop: list[Any] = [1]
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    data = json.loads(whole({"loop": loop, "deep": deep, "good": 1}, 2, problems.append))["data"]
    assert data["loop"][0] == data["loop"][1][0] == data["good"] == 1
    assert [problem.split(":")[0] for problem in problems] == ["loop", "deep"]


@pytest.mark.parametrize("depth", [300, 900, 1010])
def test_depths_at_the_encoders_limits(depth: int) -> None:
    value: Any = "end"
    for _ in range(depth):
        value = [value]
    text = whole({"a": value}, 2, lambda reason: None)
    assert json_text.parse(text)["data"]["a"]
    assert text.count("[") == text.count("]")


def test_parse_is_as_json() -> None:
    assert json_text.parse("[1e400, 123456789012345678901]") == [math.inf, 123456789012345678901]
    with pytest.raises(ValueError, match="line 1"):
        json_text.parse("[1,")
