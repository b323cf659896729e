"""The graph is read by C and by Python alike, whatever the net."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import configured
from nets import NETS, train

from msprobe.pytorch.dump import common_case, gradients, graph_walk
from msprobe.pytorch.dump.graph_walk import Boundary, SingleNode, trace_in_python

pytestmark = pytest.mark.skipif(graph_walk.trace is trace_in_python, reason="there was no compiler when msprobe was installed")


@pytest.mark.parametrize("name", NETS)
def test_both_find_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = graph_walk.trace
    kinds: list[type] = []
    different: list[Any] = []

    def both(outputs: Any, inputs: Any, floor: int) -> Any:
        found, expected = fast(outputs, inputs, floor), trace_in_python(outputs, inputs, floor)
        kinds.append(type(expected))
        if tuple(found) != tuple(expected):
            different.append((found, expected))
        return found

    monkeypatch.setattr(gradients, "trace", both)
    monkeypatch.setattr(common_case, "hot", None)
    debugger = configured(tmp_path, level="mix", risk_level="ALL")

    def stop() -> None:
        debugger.stop()
        debugger.step()

    train(NETS[name], 0.2, debugger.start, stop, steps=1)
    assert different == []
    assert kinds


def test_both_kinds_occur() -> None:
    x = torch.ones(3, requires_grad=True)
    y = (x * 2).exp()
    floor = y.grad_fn._sequence_nr() - 1  # type: ignore[union-attr]
    inputs: list[Any] = [(id(x), -1)]
    outputs: list[Any] = [(y.grad_fn, 0)]
    assert type(trace_in_python(outputs, inputs, floor)) is Boundary
    assert len(graph_walk.trace(outputs, inputs, floor)) == len(Boundary._fields)
    last: list[Any] = [y.grad_fn.next_functions[0]]  # type: ignore[union-attr]
    assert type(trace_in_python(outputs, last, floor + 1)) is SingleNode
    assert len(graph_walk.trace(outputs, last, floor + 1)) == len(SingleNode._fields)


@pytest.mark.parametrize("broken", [None, 3, [1], [(1, 2, 3)], [("a", "b")]])
def test_arguments_that_are_none(broken: Any) -> None:
    """Whatever is given, there is an exception and not a crash."""
    with pytest.raises((TypeError, IndexError, SystemError, ValueError, AttributeError)):
        graph_walk.trace(broken, broken, 0)
        raise TypeError("taken")


def test_a_long_chain_and_many_inputs() -> None:
    parts = [torch.ones(2, requires_grad=True) for _ in range(300)]
    floor = (torch.ones(1, requires_grad=True) * 1).grad_fn._sequence_nr() + 1  # type: ignore[union-attr]
    total = torch.stack([part * n for n, part in enumerate(parts)])
    for _ in range(500):
        total = total + 1
    inputs: list[Any] = [(id(part), -1) for part in parts]
    outputs: list[Any] = [(total.grad_fn, 0)]
    assert tuple(graph_walk.trace(outputs, inputs, floor)) == tuple(trace_in_python(outputs, inputs, floor))
    assert graph_walk.trace(outputs, inputs, floor)[3] == [1] * 300
