"""Two runs in two dtypes: an innocent one, and what may not hide behind the rounding."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import msprobe
from comparison.commands import compare
from msprobe.errors import UsageError

from .planting import record, tokens
from .small import WIDTH, small, train, train_in_autocast

Recorded = Callable[..., Path]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The dump of a run, recorded once for the same arguments."""
    done: dict[tuple[Any, ...], Path] = {}

    def get(name: str, make: Callable[[], nn.Module], step: Any = train, **how: str) -> Path:
        key = (name, *how.items())
        if key not in done:
            done[key] = record(tmp_path_factory.mktemp("run") / "dump", make(), step, **how)
        return done[key]

    return get


RUNS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "fp32": (small, train),
    "bf16": (lambda: small().bfloat16(), train),
    "fp16": (lambda: small().half(), train),
    "fp64": (lambda: small().double(), train),
    "autocast": (small, train_in_autocast),
}


def combinations() -> list[Any]:
    """Dtype, level, task; the default run takes some of them."""
    first = {("bf16", "mix", "statistics"), ("bf16", "mix", "tensor"), ("autocast", "mix", "statistics"), ("autocast", "L0", "tensor")}
    every = product(("bf16", "fp16", "fp64", "autocast"), ("mix", "L0", "L1"), ("statistics", "tensor"))
    return [pytest.param(*one, marks=() if one in first else pytest.mark.slow) for one in every]


@pytest.mark.parametrize(("other", "level", "task"), combinations())
def test_an_innocent_run_in_another_dtype(
    other: str, level: str, task: str, recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also through relu, which lets another few elements of a gradient pass when its argument is rounded."""
    paths = [recorded(name, *RUNS[name], level=level, task=task) for name in (other, "fp32")]
    meant = compare(capsys, *paths, tmp_path / "meant", "--accept-dtype")
    assert meant.code == 0, meant.out
    assert "No difference beyond rounding" in meant.out
    words = {row["Result"] for row in meant.rows}
    assert words <= {"pass", "warning"}
    plain = compare(capsys, *paths, tmp_path / "plain")
    assert plain.code == 1 and "--accept-dtype" in plain.out
    changed = [row for row in plain.rows if row["NPU Dtype"] != row["Bench Dtype"]]
    assert changed and {row["Result"] for row in changed} == {"error"}
    assert {row["NPU Name"] for row in plain.rows if row["Result"] == "error"} == {row["NPU Name"] for row in changed}


def test_what_an_accepted_row_says(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [recorded(name, *RUNS[name]) for name in ("bf16", "fp32")]
    ran = compare(capsys, *paths, tmp_path / "o", "--accept-dtype")
    said = ran.messages("Functional.linear.0.forward.output.0")
    assert said[0] == "accepted: another floating-point dtype on each side."
    assert said[1].startswith("size: within what rounding explains (")


def test_in_autocast_the_sentence_names_the_dtype(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [recorded(name, *RUNS[name]) for name in ("autocast", "fp32")]
    first = compare(capsys, *paths, tmp_path / "o").out.splitlines()[0]
    assert first.startswith("Inputs equal, weights equal, `linear` in `blocks.0.mlp.up` computes in torch.bfloat16, in the golden run in ")


def test_from_python(recorded: Recorded) -> None:
    paths = [recorded(name, *RUNS[name]) for name in ("bf16", "fp32")]
    msprobe.assert_same(*paths, accept_dtype=True)
    assert msprobe.compare(*paths, accept_dtype=True).passed
    with pytest.raises(AssertionError, match=r"another dtype on each side .*--accept-dtype"):
        msprobe.assert_same(*paths)
    with pytest.raises(UsageError, match="accept_dtype must be True or False"):
        msprobe.compare(*paths, accept_dtype="yes")


def test_checksums_of_two_dtypes_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def dump(name: str, model: nn.Module) -> Path:
        return record(tmp_path / name, model, train, summary_mode="md5")

    paths = dump("t", small().bfloat16()), dump("g", small())
    ran = compare(capsys, *paths, tmp_path / "o", "--accept-dtype")
    assert ran.code == 1
    assert ran.result("Functional.linear.0.forward.output.0") == "not compared"
    assert "checksums of torch.bfloat16 and torch.float32 say nothing about the values" in ran.out


def redrawn_head() -> nn.Module:
    model = small()
    torch.manual_seed(99)
    with torch.no_grad():
        model.head.weight.copy_(nn.Linear(WIDTH, model.head.out_features).weight)
    return model


@pytest.mark.parametrize("options", [(), ("--accept-dtype",)])
@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
def test_a_redrawn_head(
    options: tuple[str, ...], level: str, recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its four numbers differ by less than the rounding of bf16 usually explains, and by more than a cast does."""
    target = recorded("redrawn", lambda: redrawn_head().bfloat16(), level=level)
    ran = compare(capsys, target, recorded("fp32", *RUNS["fp32"], level=level), tmp_path / "o", *options)
    assert ran.code == 1
    first = ran.out.splitlines()[0]
    if level == "L1":
        assert "`weight` of `linear`" in first
        assert ran.result("Functional.linear.4.forward.input.1") == "error"
        return
    assert first.startswith("Inputs equal up to rounding, weight `weight` of `head` differs (forward, step 0): small.py:")
    said = ran.messages("Module.head.Linear.forward.0.parameters.weight")
    assert "error: The parameter differs." in said
    assert any(text.startswith("cast: more than rounding from one dtype to the other: its ") for text in said)
    assert "    cast: more than rounding " in ran.out


def test_a_redrawn_head_in_autocast(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weights have one dtype there, and the dtype of activations differs before the head."""
    target = recorded("redrawn autocast", redrawn_head, train_in_autocast)
    ran = compare(capsys, target, recorded("fp32", *RUNS["fp32"]), tmp_path / "o", "--accept-dtype")
    assert ran.code == 1
    assert "weight `weight` of `head` differs" in ran.out.splitlines()[0]


def on_data(name: str, seed: int, dtype: torch.dtype, recorded: Recorded) -> Path:
    """A net that takes in floating-point data."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()), nn.Linear(WIDTH, 4)).to(dtype)
    data = 0.5 + 0.5 * torch.rand(40, WIDTH, generator=torch.Generator().manual_seed(seed))

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    def step(net: nn.Module, _: torch.Tensor) -> None:
        net(data.to(dtype)).float().square().mean().backward()

    return recorded(name, Root, step, level="L0")


def test_other_data(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The four numbers of another batch lie as close as those of the same one in bf16, but for the Mean."""
    golden = on_data("data", 1, torch.float32, recorded)
    same = compare(capsys, on_data("the same data", 1, torch.bfloat16, recorded), golden, tmp_path / "same", "--accept-dtype")
    assert same.code == 0, same.out
    other = compare(capsys, on_data("other data", 4, torch.bfloat16, recorded), golden, tmp_path / "other", "--accept-dtype")
    assert other.code == 1
    assert other.out.startswith("The data differs: `input.0` of the first call, `net.0.0` (forward, step 0): test_precision.py:")
    assert "    cast: more than rounding from one dtype to the other: its Mean differs by " in other.out


def test_weights_trained_apart_are_no_other_weights(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After some steps in bf16 most of them differ by more than a cast; that is rounding, too."""

    def trained(dtype: torch.dtype) -> nn.Module:
        model = small().to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for _ in range(4):
            optimizer.zero_grad()
            train(model, tokens())
            optimizer.step()
        optimizer.zero_grad()
        return model

    paths = [recorded(f"trained {dtype}", lambda dtype=dtype: trained(dtype), level="L0") for dtype in (torch.bfloat16, torch.float32)]
    ran = compare(capsys, *paths, tmp_path / "o", "--accept-dtype")
    assert ran.code == 0, ran.out


def test_an_integer_against_a_float_stays_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from comparison.dumps import api, tensor, write_dump

    def dump(side: str, dtype: str) -> Path:
        return write_dump(tmp_path / side, {"Torch.a.0.forward": api([tensor(1.0)], [tensor(2.0, dtype)])})

    ran = compare(capsys, dump("t", "int32"), dump("g", "float32"), tmp_path / "o", "--accept-dtype")
    assert ran.code == 1
    assert ran.result("Torch.a.0.forward.output.0") == "error"
