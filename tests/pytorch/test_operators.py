"""The methods on torch.Tensor that note spellings behave as torch's own do; the C and the Python are held to the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import record

from msprobe.pytorch.dump import common_case
from msprobe.pytorch.dump.api_dump.operators import OperatorSpelling
from msprobe.recording.calls import ThreadState

pytestmark = pytest.mark.usefixtures("either")
SAME_OBJECT = ("__neg__", "__pos__", "__abs__", "__pow__", "__ipow__")
"""Those that reach a `__torch_function__` as the very object that the class has."""


@pytest.fixture(params=["C", "Python"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods in C, and those in Python."""
    if request.param == "Python":
        monkeypatch.setattr(common_case, "hot", None)
    elif common_case.hot is None:
        pytest.skip("no compiler when msprobe was installed")


def test_operators_take_what_torch_takes(tmp_path: Path) -> None:
    def calls() -> list[Any]:
        x, y = torch.tensor([5.0, 7.0]), torch.tensor([2.0, 3.0])
        found = [x.__sub__(y, alpha=3), x.__truediv__(y, rounding_mode="floor"), x.__radd__(y, alpha=2), x.__pow__(exponent=2)]
        found += [x.__iadd__(y, alpha=2), x.__add__.__name__, x.__neg__.__name__, x.__neg__()]
        return found

    plain, found = calls(), list[Any]()
    step = record(tmp_path, lambda: found.extend(calls()))
    assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(plain, found, strict=True))
    names = [n.rsplit(".", 2)[0] for n in step.data if ".__" in n]
    assert names == [f"Tensor.__{name}__" for name in ("sub", "truediv", "radd", "pow", "iadd", "neg")]


class Handler(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return "handled" if any(getattr(torch.Tensor, name) is func for name in SAME_OBJECT) else NotImplemented


def test_operators_of_the_class_are_what_they_were(tmp_path: Path) -> None:
    """Who has a table of handlers finds his handler, also where he fills the table while recording is on."""
    x = torch.ones(2).as_subclass(Handler)
    names = [n for n in dir(torch.Tensor) if n.startswith("__") and callable(getattr(torch.Tensor, n))]
    before = {n: getattr(torch.Tensor, n) for n in names if n not in ("__subclasshook__", "__init_subclass__", "__dir__")}
    after: dict[str, Any] = {}
    found: list[Any] = []

    def script() -> None:
        after.update({n: getattr(torch.Tensor, n) for n in before})
        found.extend([-x, +x, abs(x), x**2, x.__ipow__(2)])

    record(tmp_path, script)
    assert found == ["handled"] * 5
    assert all(after[n] is before[n] for n in before if getattr(torch.Tensor, n) is before[n])


def test_an_operator_that_is_no_method_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python calls a static method, or any callable object, without the tensor."""
    mine = staticmethod(lambda other: "mine")
    monkeypatch.setattr(torch.Tensor, "__add__", mine, raising=False)
    spelling = OperatorSpelling(ThreadState())
    spelling.on()
    try:
        assert vars(torch.Tensor)["__add__"] is mine and torch.ones(2) + 1 == "mine"
    finally:
        spelling.off()
