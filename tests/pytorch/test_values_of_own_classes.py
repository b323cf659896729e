"""Containers of the user's own classes are read without running their code: it may draw random numbers, or change what it gives."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import record

from msprobe.pytorch.dump import containers

CALLED: list[str] = []


def own(name: str) -> Callable[..., Any]:
    """A method that nobody but the user may call."""

    def method(self: Any, *args: Any) -> Any:
        CALLED.append(name)
        torch.rand(1)
        return getattr(super(type(self), self), name)(*args)

    return method


OWN = {name: own(name) for name in ("__iter__", "__len__", "__getitem__", "items", "keys", "values", "copy", "__contains__")}
OwnList = type("OwnList", (list,), OWN)
OwnTuple = type("OwnTuple", (tuple,), OWN)
OwnDict = type("OwnDict", (dict,), OWN)
OwnOrdered = type("OwnOrdered", (collections.OrderedDict,), OWN)
OwnUserDict = type("OwnUserDict", (collections.UserDict,), OWN)
OwnNamed = type("OwnNamed", (collections.namedtuple("Pair", "x y"),), OWN)


@dataclasses.dataclass
class OwnData:
    x: int

    def __getattribute__(self, name: str) -> Any:
        CALLED.append(name)
        torch.rand(1)
        return super().__getattribute__(name)


@dataclasses.dataclass(slots=True)
class Slots:
    x: int
    y: int = dataclasses.field(init=False)


class Drawing(Mapping[str, Any]):
    def __iter__(self) -> Iterator[str]:
        CALLED.append("__iter__")
        return iter("x")

    def __len__(self) -> int:
        CALLED.append("__len__")
        return 1

    def __getitem__(self, key: str) -> Any:
        CALLED.append("__getitem__")
        return torch.rand(1)


class Bound:
    def __index__(self) -> int:
        CALLED.append("__index__")
        return 1

    __int__ = __index__


class Probe(torch.nn.Module):
    def forward(self, *args: Any) -> None:
        return None


ONE = {"type": "int", "value": 1}
OWN_CLASSES: list[tuple[Any, Any]] = [
    (OwnList([1]), [ONE]),
    (OwnTuple((1,)), [ONE]),
    (OwnDict(a=1), {"a": ONE}),
    (OwnOrdered(a=1), {"a": ONE}),
    (OwnUserDict(a=1), {"a": ONE}),
    (OwnNamed(1, 1), {"x": ONE, "y": ONE}),
    (types.MappingProxyType(OwnDict(a=1)), {"a": ONE}),
    (types.MappingProxyType(Drawing()), None),
    (collections.ChainMap(OwnDict(a=1), {"a": 2}), {"a": ONE}),
    (collections.ChainMap({}, Drawing()), None),
    (OwnData(1), {"x": ONE}),
    (Drawing(), None),
    (slice(Bound(), 1), {"type": "slice", "value": ["Bound", 1, None]}),
]


@pytest.mark.parametrize("task", ["statistics", "tensor", "structure"])
@pytest.mark.parametrize(("value", "expected"), OWN_CLASSES, ids=lambda v: type(v).__name__)
def test_no_code_of_theirs_runs(tmp_path: Path, value: Any, expected: Any, task: str) -> None:
    model, before = torch.nn.ModuleList([Probe()]), torch.get_rng_state()
    CALLED.clear()
    step = record(tmp_path, lambda: model[0](value), model=model, level="L0", task=task)
    assert not CALLED and torch.equal(torch.get_rng_state(), before)
    if task != "structure":
        assert step.only("forward")["input_args"] == [expected]


class Returning(torch.nn.Module):
    def forward(self) -> Any:
        return OwnTuple((1, 1))


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_results_of_own_tuples(tmp_path: Path, task: str) -> None:
    model = torch.nn.ModuleList([Returning()])
    CALLED.clear()
    step = record(tmp_path, lambda: model[0](), model=model, level="L0", task=task)
    assert not CALLED and step.only("forward")["output"] == [ONE, ONE]


def test_the_order_of_an_ordered_dict() -> None:
    value = collections.OrderedDict(a=1, b=2)
    value.move_to_end("a")
    assert list(containers.items(value, type(value)) or ()) == [("b", 2), ("a", 1)]


def test_slots_and_defaults() -> None:
    assert [containers.field(Slots(1), Slots, name) for name in containers.field_names(Slots)] == [1, None]
    with_default = dataclasses.make_dataclass("WithDefault", [("x", int, 3)])
    value = with_default()
    del value.__dict__["x"]
    assert containers.field(value, with_default, "x") == 3
