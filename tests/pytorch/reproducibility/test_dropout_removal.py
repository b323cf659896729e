"""seed_all(rm_dropout=True): no dropout of torch draws a number or changes a value, wherever it hides."""

from __future__ import annotations

import copy
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capturing import environment, record
from torch import nn
from torch.nn.functional import dropout as imported_before
from torch.nn.functional import scaled_dot_product_attention as attention_imported_before

import warm_python
from msprobe.pytorch import seed_all

ROWS = torch.arange(1.0, 49).reshape(2, 6, 4)

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "F.dropout": lambda x: F.dropout(x, 0.5),
    "F.dropout p=1": lambda x: F.dropout(x, 1.0),
    "F.dropout in place": lambda x: F.dropout(x, 0.5, inplace=True),
    "F.dropout1d": lambda x: F.dropout1d(x, 0.5),
    "F.dropout2d": lambda x: F.dropout2d(x[None], 0.5)[0],
    "F.dropout3d": lambda x: F.dropout3d(x[None, None], 0.5)[0, 0],
    "F.alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "F.alpha_dropout in place": lambda x: F.alpha_dropout(x, 0.5, True, True),
    "F.feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, True),
    "torch.dropout": lambda x: torch.dropout(x, 0.5, True),
    "torch.dropout_": lambda x: torch.dropout_(x, 0.5, True),
    "torch.alpha_dropout": lambda x: torch.alpha_dropout(x, 0.5, True),
    "torch.feature_dropout_": lambda x: torch.feature_dropout_(x, 0.5, True),
    "torch.feature_alpha_dropout": lambda x: torch.feature_alpha_dropout(x, 0.5, True),
    "torch.native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "torch.ops.aten.dropout": lambda x: torch.ops.aten.dropout(x, 0.5, True),
    "imported before": lambda x: imported_before(x, 0.5),
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    "Dropout": lambda: nn.Dropout(0.5),
    "Dropout in place": lambda: nn.Dropout(0.5, inplace=True),
    "Dropout1d": lambda: nn.Dropout1d(0.5),
    "Dropout2d": lambda: nn.Sequential(nn.Unflatten(0, (1, 2)), nn.Dropout2d(0.5), nn.Flatten(0, 1)),
    "Dropout3d": lambda: nn.Dropout3d(0.5),
    "AlphaDropout": lambda: nn.AlphaDropout(0.5),
    "FeatureAlphaDropout": lambda: nn.FeatureAlphaDropout(0.5),
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: nn.LSTM(4, 4, 3, dropout=0.5, batch_first=True),
    "GRU": lambda: nn.GRU(4, 4, 3, dropout=0.5, bidirectional=True),
    "RNN tanh": lambda: nn.RNN(4, 4, 3, dropout=0.5),
    "RNN relu": lambda: nn.RNN(4, 4, 3, dropout=0.5, nonlinearity="relu"),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True),
    "TransformerDecoder": lambda: Pair(nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, dropout=0.5), 2)),
    "MultiheadAttention": lambda: Attending(nn.MultiheadAttention(4, 2, dropout=0.5), True),
    "MultiheadAttention without weights": lambda: Attending(nn.MultiheadAttention(4, 2, dropout=0.5), False),
}


class Pair(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x)


class Attending(nn.Module):
    def __init__(self, inner: nn.Module, weights: bool) -> None:
        super().__init__()
        self.inner = inner
        self.weights = weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x, need_weights=self.weights)[0]


def first(value: Any) -> torch.Tensor:
    return value[0] if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function = FUNCTIONS[name]
    assert not torch.equal(function(ROWS.clone()), ROWS)
    seed_all(rm_dropout=True)
    before = torch.get_rng_state()
    x = ROWS.clone().requires_grad_()
    result = function(x * 1)
    result.sum().backward()
    assert torch.equal(result, ROWS) and x.grad is not None and torch.equal(x.grad, torch.ones_like(ROWS))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.inference_mode():
        assert torch.equal(function(ROWS.clone()), ROWS)
    seed_all()
    assert not torch.equal(function(ROWS.clone()), ROWS)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("early", [True, False], ids=["made before", "made after"])
def test_modules(name: str, early: bool) -> None:
    module = MODULES[name]() if early else None
    seed_all(rm_dropout=True)
    module = module or MODULES[name]()
    assert torch.equal(module(ROWS.clone()), ROWS)
    seed_all()
    assert not torch.equal(module(ROWS.clone()), ROWS)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_compute_what_they_do_with_no_dropout(name: str) -> None:
    layer = LAYERS[name]()
    assert not torch.equal(first(layer(ROWS)), first(layer(ROWS)))
    without = copy.deepcopy(layer)
    for module in without.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    seed_all(rm_dropout=True)
    before = torch.get_rng_state()
    assert torch.equal(first(layer(ROWS)), first(without(ROWS)))
    assert torch.equal(torch.get_rng_state(), before)
    seed_all()
    assert not torch.equal(first(layer(ROWS)), first(layer(ROWS)))


def test_packed_sequences() -> None:
    layer = nn.LSTM(4, 4, 3, dropout=0.5)
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(6, 2, 4), torch.tensor([6, 3]))
    assert not torch.equal(layer(packed)[0].data, layer(packed)[0].data)
    seed_all(rm_dropout=True)
    assert torch.equal(layer(packed)[0].data, layer(packed)[0].data)


@pytest.mark.parametrize("imported", [True, False])
@pytest.mark.parametrize("by_position", [True, False])
def test_attention(imported: bool, by_position: bool) -> None:
    q = torch.randn(1, 2, 5, 4)
    expected = F.scaled_dot_product_attention(q, q, q)
    seed_all(rm_dropout=True)
    attention = attention_imported_before if imported else F.scaled_dot_product_attention
    assert torch.equal(attention(q, q, q, None, 0.5) if by_position else attention(q, q, q, dropout_p=0.5), expected)


def test_a_wrong_probability_is_refused_as_always() -> None:
    seed_all(rm_dropout=True)
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(ROWS, 1.5)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        torch.dropout(ROWS, -0.5, True)


def test_what_python_sees_is_unchanged() -> None:
    functions = [F.dropout, F.dropout2d, F.alpha_dropout, torch.dropout, nn.Dropout.forward]
    attention = F.scaled_dot_product_attention
    seed_all(rm_dropout=True)
    assert [F.dropout, F.dropout2d, F.alpha_dropout, torch.dropout, nn.Dropout.forward] == functions
    assert nn.Dropout(0.9).p == 0.9
    assert F.scaled_dot_product_attention == attention and pickle.loads(pickle.dumps(F.scaled_dot_product_attention)) is attention
    assert isinstance(pickle.loads(pickle.dumps(nn.Sequential(nn.Dropout(0.5), nn.LSTM(2, 2, 2, dropout=0.5)))), nn.Sequential)
    seed_all()
    assert F.scaled_dot_product_attention is attention is attention_imported_before is torch._C._nn.scaled_dot_product_attention
    assert "lstm" not in vars(torch._VF)


@pytest.mark.parametrize("first_seeded", [True, False], ids=["seed_all first", "debugger first"])
def test_a_dump_names_them_as_always(first_seeded: bool, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout(0.5))

    def body() -> None:
        if not first_seeded:
            seed_all(rm_dropout=True)
        net(torch.ones(1, 2, 2, 2))
        torch.dropout(ROWS, 0.5, True)
        F.scaled_dot_product_attention(ROWS, ROWS, ROWS, dropout_p=0.5)

    if first_seeded:
        seed_all(rm_dropout=True)
    step = record(tmp_path, body)
    names = ["Functional.dropout", "Functional.dropout2d", "Functional.alpha_dropout", "Torch.dropout"]
    assert step.names == [f"{name}.0.forward" for name in (*names, "Functional.scaled_dot_product_attention")]
    assert [entry["output"][0]["Min"] for entry in step.data.values()][:4] == [1.0] * 4
    assert "nn/modules/dropout.py" in step.frames("Functional.dropout.0.forward")[0]


def test_compiled_before_and_after() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) * 1

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    assert not torch.equal(compiled(ROWS), ROWS)
    seed_all(rm_dropout=True)
    assert torch.equal(compiled(ROWS), ROWS)
    layer = torch.compile(Attending(nn.MultiheadAttention(4, 2, dropout=0.5), False), backend="aot_eager", fullgraph=True)
    assert torch.equal(layer(ROWS), layer(ROWS))
    seed_all()
    assert not torch.equal(compiled(ROWS), ROWS)


def test_compiled_code_is_compiled_anew_when_dropout_comes_or_goes() -> None:
    compilations: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compilations.append(1)
        return graph.forward

    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend=backend)
    for expected in (False, False, True, True, False):
        seed_all(rm_dropout=expected)
        assert torch.equal(compiled(ROWS), ROWS) is expected
    assert len(compilations) == 3


def test_scripted_and_traced() -> None:
    scripted = torch.jit.script(nn.Dropout(0.5))
    traced = torch.jit.trace(nn.Dropout(0.5), ROWS, check_trace=False)
    seed_all(rm_dropout=True)
    assert torch.equal(scripted(ROWS), ROWS) and torch.equal(traced(ROWS), ROWS)
    layer = torch.jit.script(nn.Sequential(nn.LSTM(4, 4, 2, dropout=0.5)))
    assert torch.equal(layer(ROWS)[0], layer(ROWS)[0])


def test_vmap_needs_no_leave_to_draw() -> None:
    seed_all(rm_dropout=True)
    assert torch.equal(torch.func.vmap(lambda x: F.dropout(x, 0.5))(ROWS), ROWS)


COMPILED = """
import sys, torch, torch.nn.functional as F
from msprobe.pytorch import seed_all
seed_all(rm_dropout=sys.argv[1] == "without")
print(torch.compile(lambda x: F.dropout(x.sin(), 0.5) + 1)(torch.ones(64)).unique().numel())
"""


@pytest.mark.slow
def test_the_compiler_s_cache_on_disk_does_not_bring_dropout_back(tmp_path: Path) -> None:
    seen = []
    for how in ("with", "without", "with"):
        run = subprocess.run(
            [*warm_python.command(), "-c", COMPILED, how],
            env={**environment(), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.append(int(run.stdout))
    assert seen == [2, 1, 2]


def test_a_kernel_that_may_not_be_replaced_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    replace = torch.library.Library.impl

    def refuse(library: Any, name: str, kernel: Any, key: str = "", **options: Any) -> None:
        if name == "native_dropout":
            raise RuntimeError("there's already a kernel registered from python")  # torch 2.6 says so
        replace(library, name, kernel, key, **options)

    monkeypatch.setattr(torch.library.Library, "impl", refuse)
    seed_all(rm_dropout=True)
    assert "native_dropout on CPU stays as it is: there's already a kernel" in capsys.readouterr().err
    assert torch.equal(F.dropout(ROWS), ROWS)
