"""Two recorded runs of models that are not built alike: what both compute pairs, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from msprobe.comparison.options import Options  # noqa: E402
from msprobe.comparison.outcome import PairReport  # noqa: E402

from ..dumps import read_csv  # noqa: E402
from .runs import compared, record, training  # noqa: E402

LEVELS = ["L1", "mix"]


class Block(nn.Module):
    """Like that of a llama, in small."""

    def __init__(self, width: int = 8, *, extra_call: bool = False, spelled: bool = False) -> None:
        super().__init__()
        self.extra_call, self.spelled = extra_call, spelled
        self.q_proj, self.k_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.gate_proj, self.up_proj, self.down_proj = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x: Any) -> Any:
        mixed = torch.softmax(self.q_proj(x) @ self.k_proj(x).transpose(-1, -2), -1) @ x
        if self.extra_call:
            mixed = mixed * 1.0
        x = torch.add(x, self.o_proj(mixed)) if self.spelled else x + self.o_proj(mixed)
        gate = functional.silu(self.gate_proj(x))
        hidden = torch.mul(gate, self.up_proj(x)) if self.spelled else gate * self.up_proj(x)
        return x.add(self.down_proj(hidden)) if self.spelled else x + self.down_proj(hidden)


class Model(nn.Module):
    def __init__(self, layers: int = 4, *, again: bool | None = None, **block: Any) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.again = again
        self.layers = nn.ModuleList(Block(**block) for _ in range(layers))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x) if self.again is None else checkpoint(layer, x, use_reentrant=self.again)
        return self.head(x)


def run(directory: Path, model: Any, **options: Any) -> Path:
    torch.manual_seed(7)
    return record(directory, model, training(model, torch.randn(2, 5, 8, requires_grad=True)), **options)


def unmatched(report: PairReport) -> tuple[list[str], list[str]]:
    """Names of the calls that only the target, and only the golden dump has."""
    sides: tuple[list[str], list[str]] = ([], [])
    for row in read_csv(report.csv):
        if row["Result"] == "unmatched":
            side = 0 if row["Bench Name"] == "N/A" else 1
            name = row[("NPU Name", "Bench Name")[side]]
            call = name.split(".input.")[0].split(".output.")[0].split(".parameters.")[0]
            if call not in sides[side]:
                sides[side].append(call)
    return sides


def others_pass(report: PairReport) -> bool:
    return all(row["Result"] in ("pass", "unmatched") for row in read_csv(report.csv))


@pytest.mark.parametrize("level", LEVELS)
def test_a_call_that_was_added_in_the_middle(tmp_path: Path, level: str) -> None:
    """Multiplying by one changes no value: but for the added call, everything agrees."""
    plain, added = Model(), Model()
    added.layers[1].extra_call = True
    report = compared(run(tmp_path / "t", added, level=level), run(tmp_path / "g", plain, level=level), tmp_path / "o")
    ours, theirs = unmatched(report)
    assert theirs == []
    assert ours == ["Tensor.__mul__.1.forward", "Tensor.__mul__.1.backward"]
    assert others_pass(report)
    back = compared(run(tmp_path / "t2", plain, level=level), run(tmp_path / "g2", added, level=level), tmp_path / "o")
    assert unmatched(back) == ([], ours) and others_pass(back)


@pytest.mark.parametrize("level", LEVELS)
def test_another_spelling_of_an_operator(tmp_path: Path, level: str) -> None:
    report = compared(run(tmp_path / "t", Model(spelled=True), level=level), run(tmp_path / "g", Model(), level=level), tmp_path / "o")
    assert unmatched(report) == ([], [])
    assert report.counts["pass"] == report.matched


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("level", LEVELS)
def test_a_layer_that_was_added(tmp_path: Path, level: str, place: int) -> None:
    """The layers behind it have other numbers, and are known by their weights."""
    plain, longer = Model(), Model()
    torch.manual_seed(99)
    layers = list(longer.layers)
    layers.insert(place, Block())
    longer.layers = nn.ModuleList(layers)
    report = compared(run(tmp_path / "t", longer, level=level), run(tmp_path / "g", plain, level=level), tmp_path / "o")
    ours, theirs = unmatched(report)
    assert theirs == []
    assert all(f"Module.layers.{place}." in name for name in ours if name.startswith("Module"))
    assert len([name for name in ours if name.startswith("Functional.linear") and name.endswith("forward")]) == 6
    linear = [row for row in read_csv(report.csv) if row["NPU Name"].startswith("Functional.linear")]
    weights = [row for row in linear if row["NPU Name"].endswith("forward.input.1")]
    assert len(weights) == 31 and {row["Result"] for row in weights} == {"pass", "unmatched"}
    assert sum(row["Result"] == "pass" for row in weights) == 25


@pytest.mark.parametrize("again", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("level", LEVELS)
def test_recomputed_calls_of_one_side(tmp_path: Path, level: str, again: bool) -> None:
    """Gradients of the calls that were run again are those of the calls of the other side."""
    target, golden = run(tmp_path / "t", Model(again=again), level=level), run(tmp_path / "g", Model(), level=level)
    report = compared(target, golden, tmp_path / "o")
    ours, theirs = unmatched(report)
    assert theirs == []
    assert ours and all("forward" in name for name in ours)
    assert others_pass(report)
    assert any("calls of the target were run again by the backward pass (activation checkpointing)" in note for note in report.notes)
    back = compared(golden, target, tmp_path / "o")
    assert unmatched(back) == ([], ours) and others_pass(back)


def test_recomputed_calls_of_both_sides(tmp_path: Path) -> None:
    added = Model(again=False)
    added.layers[1].extra_call = True
    report = compared(run(tmp_path / "t", added), run(tmp_path / "g", Model(again=False)), tmp_path / "o")
    ours, theirs = unmatched(report)
    assert theirs == [] and others_pass(report)
    assert {name.rpartition(".")[2] for name in ours} == {"forward", "backward"} and len(ours) == 3


def test_modules_with_other_names_and_classes(tmp_path: Path) -> None:
    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.act, self.second = nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.second(self.act(self.first(x)))

    class Named(Renamed):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.fc1, self.act, self.fc2 = nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.fc2(self.act(self.fc1(x)))

    ours, theirs = Renamed(), Named()
    for mine, other in ((ours.first, theirs.fc1), (ours.second, theirs.fc2)):
        other.load_state_dict(mine.state_dict())
    report = compared(run(tmp_path / "t", ours), run(tmp_path / "g", theirs), tmp_path / "o")
    assert unmatched(report) == ([], []) and report.counts["pass"] == report.matched
    assert "Module.first of the target is Module.fc1 in the golden run, and 1 more modules alike" in report.notes[0]


def test_a_model_inside_a_wrapper(tmp_path: Path) -> None:
    """As under DDP: every path begins with `module`."""

    class Wrapper(nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            return self.module(x)

    report = compared(run(tmp_path / "t", Wrapper(Model())), run(tmp_path / "g", Model()), tmp_path / "o")
    ours, theirs = unmatched(report)
    assert theirs == [] and all(name.startswith("Module.module.Model.") for name in ours)
    assert others_pass(report)


def test_gradients_that_come_in_another_order(tmp_path: Path) -> None:
    """F15: the existing tool pairs backward calls by the order in which they ran."""

    def step(model: Any, first: int) -> Any:
        def run_it() -> None:
            torch.manual_seed(3)
            losses = [model(torch.randn(2, 5, 8, requires_grad=True)).square().mean() for _ in range(2)]
            for index in (first, 1 - first):
                losses[index].backward()

        return run_it

    models = Model(2), Model(2)
    target = record(tmp_path / "t", models[0], step(models[0], 1))
    golden = record(tmp_path / "g", models[1], step(models[1], 0))
    report = compared(target, golden, tmp_path / "o")
    assert report.counts["unmatched"] == 0
    worse = [row["NPU Name"] for row in read_csv(report.csv) if row["Result"] != "pass"]
    assert all("parameters_grad" in name for name in worse)  # of two passes, the first to come is another


def test_levels_that_differ(tmp_path: Path) -> None:
    added = Model()
    added.layers[1].extra_call = True
    report = compared(run(tmp_path / "t", added, level="L1"), run(tmp_path / "g", Model(), level="mix"), tmp_path / "o")
    ours, theirs = unmatched(report)
    assert ours == ["Tensor.__mul__.1.forward", "Tensor.__mul__.1.backward"]
    assert all(name.startswith("Module.") for name in theirs)
    assert others_pass(report)


def test_fuzzy_pairs_whatever_is_left(tmp_path: Path) -> None:
    """F3: in every mode, every pair is compared and no row is lost."""
    for task in ("statistics", "tensor"):
        directory = tmp_path / task
        report = compared(
            run(directory / "t", Model(5), task=task), run(directory / "g", Model(4), task=task), directory / "o", Options(fuzzy=True)
        )
        ours, theirs = unmatched(report)
        assert theirs == [] and ours
        assert report.counts["not compared"] == 0
        assert len(read_csv(report.csv)) == report.matched + report.counts["unmatched"]
