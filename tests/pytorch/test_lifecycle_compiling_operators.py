"""Operators that compile themselves in eager code, in a recorded window: they give what they give without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, configured

pytestmark = pytest.mark.filterwarnings("ignore")
BEFORE_2_7 = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7)


class Net(nn.Module):
    def __init__(self, work: Callable[[Net, torch.Tensor], Any]) -> None:
        super().__init__()
        self.first, self.inner, self.weight = nn.Linear(4, 4), nn.Linear(4, 4), nn.Parameter(torch.randn(4))
        self.work = work

    def forward(self, x: torch.Tensor) -> Any:
        return self.work(self, self.first(x))


def _cond(net: Net, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))


def _closing_over_a_parameter(net: Net, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a * net.weight, lambda a: (a * net.weight).cos(), (x,))


def _modules_in_branches(net: Net, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a: net.inner(a), lambda a: net.inner(a) * 2, (x,))


def _map(net: Net, x: torch.Tensor) -> Any:
    from torch._higher_order_ops.map import map

    return map(lambda a: a * net.weight, x)


def _scan(net: Net, x: torch.Tensor) -> Any:
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, a: (carry + a, carry * a), x[0] * 0, x)[1]


def _associative_scan(net: Net, x: torch.Tensor) -> Any:
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(torch.mul, x, 0, combine_mode="generic")


def _while_loop(net: Net, x: torch.Tensor) -> Any:
    from torch._higher_order_ops.while_loop import while_loop

    with torch.no_grad():
        factor = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x.detach()))[1]
    return x * factor


def _flex_attention(net: Net, x: torch.Tensor) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    with torch.no_grad():
        values = x.detach().reshape(1, 1, -1, 4)
        factor = flex_attention(values, values, values, score_mod=lambda score, b, h, i, j: score * 2)
    return x * factor.reshape(4, 4)


WORK = [
    _cond,
    _closing_over_a_parameter,
    _modules_in_branches,
    _map,
    _scan,
    _associative_scan,
    _while_loop,
    _flex_attention,
]


def train(net: Net, model: Callable[[torch.Tensor], Any]) -> list[Any]:
    net.zero_grad()
    x = torch.linspace(-1, 2, 16).reshape(4, 4).requires_grad_()
    output = model(x)
    output.sum().backward()
    return [type(output), output.detach().clone(), x.grad, *(parameter.grad for parameter in net.parameters())]


def assert_same(a: list[Any], b: list[Any]) -> None:
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) else one == other


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("work", WORK)
def test_operators_that_compile_themselves(tmp_path: Path, work: Any, level: str) -> None:
    """Compiled in the window, before it and after it: always the same."""
    import torch._dynamo

    torch._dynamo.reset()
    torch.manual_seed(0)
    net = Net(work)
    if work is _scan and BEFORE_2_7:
        pytest.skip("this torch has no gradients of scan")
    debugger = configured(tmp_path, level=level)
    debugger.start(net)
    watched = train(net, net)
    debugger.stop()
    debugger.step()
    assert_same(watched, train(net, net))
    torch._dynamo.reset()
    assert_same(watched, train(net, net))
    debugger.start(net)
    assert_same(watched, train(net, net))
    debugger.stop()
    debugger.step()
    assert ("Module.first.Linear.forward.0" in Run(tmp_path / "dump").step().data) == (level != "L1")


def test_code_of_the_user_around_them_stays_eager(tmp_path: Path) -> None:
    """A model that the user compiles runs eagerly in the window, and the operator in it compiles itself."""
    import torch._dynamo

    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.manual_seed(0)
    net = Net(_closing_over_a_parameter)
    compiled = torch.compile(net, backend=backend)
    plain = train(net, net)
    debugger = configured(tmp_path, level="mix")
    debugger.start(compiled)
    assert_same(plain, train(net, compiled))
    debugger.stop()
    debugger.step()
    assert graphs == []


def test_the_stance_of_the_user_holds_for_them(tmp_path: Path) -> None:
    """Where the user has forbidden to compile anything anew, it stays forbidden in the window."""
    import torch._dynamo

    torch._dynamo.reset()
    debugger = configured(tmp_path)
    x = torch.ones(2)
    torch.compiler.set_stance("fail_on_recompile")
    try:
        debugger.start(nn.ModuleList())
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))
        debugger.step()
    finally:
        torch.compiler.set_stance("default")
