"""Values that no framework makes."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

from msprobe.recording.plain_values import PLAIN, plain_record


class Colour(enum.IntEnum):
    RED = 3


class Name(str):
    def __str__(self) -> str:
        return "not what it holds"


class Liar:
    __class__ = int  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "record"),
    [
        (Colour.RED, {"type": "Colour", "value": 3}),
        (Name("a"), {"type": "Name", "value": "a"}),
        (1j, {"type": "complex", "value": "1j"}),
        (..., {"type": "ellipsis", "value": "..."}),
        (1 << 5000, {"type": "int", "value": hex(1 << 5000)}),
        (-(1 << 5000), {"type": "int", "value": hex(-(1 << 5000))}),
        (np.bool_(True), {"type": "bool", "value": True}),
        (np.float16(1.5), {"type": "float16", "value": 1.5}),
        (np.complex64(1j), {"type": "complex64", "value": "1j"}),
    ],
)
def test_records(value: Any, record: dict[str, Any]) -> None:
    found = plain_record(value, type(value))
    assert found == record
    assert found is not None and type(found["value"]) in PLAIN


@pytest.mark.parametrize("value", [None, object(), [1], {}, slice(1), Liar()], ids=["none", "object", "list", "dict", "slice", "liar"])
def test_all_else_is_not_known_here(value: Any) -> None:
    assert plain_record(value, type(value)) is None
