"""Whole sides of a call: C and Python give the same records."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from msprobe import numerics
from msprobe.numerics import fallback

CLASSES = (torch.Tensor, torch.nn.Parameter)
TABLE = {getattr(torch, name): ("torch.Tensor", code, f"torch.{name}") for name, code in numerics.CODE.items() if hasattr(torch, name)}


class Text(str):
    pass


VALUES: dict[str, Any] = {
    "tensor": torch.arange(6.0).view(2, 3),
    "leaf": torch.nn.Parameter(torch.ones(2)),
    "nan": torch.tensor([1.0, math.nan]),
    "empty": torch.empty(0, 3),
    "integers": torch.arange(4),
    "bools": torch.tensor([True, False]),
    "meta": torch.empty(2, device="meta"),
    "none": None,
    "true": True,
    "zero": 0,
    "wide": 1 << 80,
    "float": 0.5,
    "inf": -math.inf,
    "text": "é",
    "subclass": Text("x"),
    "list": [1],
}


def run(each: Any, values: Any) -> Any:
    leaves: list[Any] = []
    records, tensors, _ = each(values, CLASSES, TABLE, leaves, lambda value, name: ["other", name])
    return repr(records), tensors, [id(leaf) for leaf in leaves]


def test_positional_values() -> None:
    values = tuple(VALUES.values())
    assert run(numerics.describe_each, values) == run(fallback.describe_each, values)
    records, tensors, leaves = run(numerics.describe_each, values)
    assert tensors == 6 and leaves == [id(VALUES["leaf"])] and records.count("other") == 4
    assert run(numerics.describe_each, ()) == ("[]", 0, [])


def test_keyword_values() -> None:
    values = VALUES | {"dtype": "float32", "device": 0, "output_dtype": float}
    assert run(numerics.describe_items, values) == run(fallback.describe_items, values)
    assert run(numerics.describe_items, {"dtype": None, "device": torch.ones(1)})[1] == 1


@pytest.mark.skipif(not numerics.HAVE_KERNELS, reason="only the kernels tell")
@pytest.mark.parametrize("name", VALUES)
def test_what_cannot_hold_nan(name: str) -> None:
    """True only where it is certain: a wrong True would let NaN be written as null."""
    _, _, ordinary = numerics.describe_each((VALUES[name],), CLASSES, TABLE, [], lambda value, name: None)
    assert ordinary == (name not in ("nan", "meta", "wide", "inf", "subclass", "list"))


@pytest.mark.parametrize("each", [numerics.describe_each, fallback.describe_each])
def test_an_error_in_other_comes_out(each: Any) -> None:
    def other(value: Any, name: Any) -> Any:
        raise RuntimeError("in other")

    with pytest.raises(RuntimeError, match="in other"):
        each(([1],), CLASSES, TABLE, [], other)


@pytest.mark.skipif(not numerics.HAVE_KERNELS, reason="the kernels check what they are given")
@pytest.mark.parametrize(
    "arguments", [((),), ([], CLASSES, TABLE, [], print), ((), (int,), TABLE, [], print), ((), CLASSES, TABLE, (), print)]
)
def test_wrong_arguments(arguments: Any) -> None:
    with pytest.raises((TypeError, SystemError)):
        numerics.describe_each(*arguments)
