"""The nesting of a saved value, and gradients put into it."""

from __future__ import annotations

from typing import Any

import pytest

from msprobe.recording.saved_nesting import blank, put
from msprobe.writer.entry import Entry

TENSOR = {"type": "torch.Tensor", "shape": [1]}
VALUE = {"a": [TENSOR, {"type": [TENSOR], "0": TENSOR}], "b": None, "c": []}


def test_a_blank_has_the_nesting_and_no_value() -> None:
    assert blank(VALUE) == {"a": [None, {"type": [None], "0": None}], "b": None, "c": []}
    assert blank(TENSOR) is None


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (("a", "0"), {"a": ["g", {"type": [None], "0": None}], "b": None, "c": []}),
        (("a", "1", "0"), {"a": [None, {"type": [None], "0": "g"}], "b": None, "c": []}),
        (("a", "1", "type", "0"), {"a": [None, {"type": ["g"], "0": None}], "b": None, "c": []}),
        ((), "g"),
    ],
)
def test_a_gradient_stands_where_its_value_does(path: tuple[str, ...], data: Any) -> None:
    entry = Entry("x_grad.0.debug", blank(VALUE), False)
    put(entry, path, "g")
    assert entry.data == data


def test_blanks_are_independent() -> None:
    first = Entry("x_grad.0.debug", blank(VALUE), False)
    second = Entry("x_grad.0.debug.pass1", blank(first.data), False)
    put(second, ("a", "0"), "g")
    assert first.data == blank(VALUE)
