"""`save` and `save_grad` in graphs of all kinds; see static_save_graph_cases.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def saved(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("static_save_graphs")
    answer = run_mindspore("static_save_graph_cases.py", directory)
    return {**answer, "output": (directory / "output.txt").read_text(encoding="utf-8")}


@pytest.mark.parametrize("net", ["Blocks", "Flow", "Wrong", "Open"])
def test_loss_gradients_and_parameters_have_the_same_bits(saved: Any, net: str) -> None:
    assert saved[net] is True


def test_cells_one_after_the_other_are_numbered_in_their_order(saved: Any) -> None:
    names = ["after_float32", "q_float32", "q_grad_float32", "x_float32"]
    files = {name: value for name, value in saved["files"].items() if name.startswith("blocks/")}
    assert sorted(files) == [f"blocks/step0/rank0/{name}_{number}.npy" for name in names for number in (0, 1)]
    assert files["blocks/step0/rank0/after_float32_0.npy"] == files["blocks/step0/rank0/x_float32_1.npy"]


def test_loops_and_branches_that_are_decided_when_the_graph_runs(saved: Any) -> None:
    files = {name.removeprefix("home/flow/step1/rank0/"): value for name, value in saved["files"].items() if name.startswith("home/")}
    (branch,) = {"more_float32_0.npy", "less_float32_0.npy"} & set(files)
    turns = [f"w_{kind}_{number}.npy" for kind in ("float32", "grad_float32") for number in range(3)]
    assert set(files) == {branch, *turns}
    assert files[branch] == files["w_float32_2.npy"] and (files[branch] > 0) == branch.startswith("more")


def test_what_cannot_be_saved_is_told_and_the_training_goes_on(saved: Any) -> None:
    assert not any(name.startswith(("wrong", "open")) for name in saved["files"])
    for text in (
        "a value has a name or a directory that changes while the graph runs",
        "save(name=<int>): it must be text, and not empty; nothing is saved",
        "save(save_dir=<str>): it must be text, and not empty; nothing is saved",
        "save_grad(name=<int>): it must be text, and not empty; nothing is saved",
        'save_grad(name="factor"): only a tensor has a gradient; nothing is saved',
        "y is of a shape that is known only when the graph runs",
    ):
        assert saved["output"].count(text) == 1, text
