"""Which step and which rank is the headline."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.options import Options

from .dumps import api, module, tensor, write_dump


def test_a_call_without_partner_in_an_earlier_step_is_told_before_a_value_of_a_later_one(tmp_path: Path) -> None:
    both = {"Torch.a.0.forward": api([tensor()], [tensor()])}
    extra = {**both, "Tensor.add_.0.forward": api([tensor()], [tensor()])}
    changed = {"Torch.a.0.forward": api([tensor(5.0)], [tensor()])}
    for side, steps in (("t", (both, both, changed)), ("g", (both, extra, both))):
        for number, data in enumerate(steps):
            write_dump(tmp_path / side / f"step{number}" / "rank0", data)
    text = [line.text for line in describe(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o"))]
    at = text.index("First difference of step1 rank0: the call Tensor.add_.0.forward is in the golden dump only")
    assert text[at + 1].startswith("First value that differs of step2 rank0: inputs of the first call differ: input.0")


def test_the_first_difference_beyond_rounding_may_lie_in_a_later_step(tmp_path: Path) -> None:
    for side, gain in (("t", 1.0), ("g", 1.5)):
        for step, value in ((0, 1.0 + (1e-7 if side == "t" else 0)), (1, gain)):
            write_dump(tmp_path / side / f"step{step}" / "rank0", {"Torch.a.0.forward": api([tensor()], [tensor(value)])})
    text = "\n".join(line.text for line in describe(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o")))
    assert "First difference beyond rounding of step1 rank0: Torch.a.0.forward (inputs equal, output differs)" in text
    assert "every later one" not in text


@pytest.mark.parametrize("guilty", [0, 1])
def test_the_rank_that_received_a_gradient_is_not_the_headline(guilty: int, tmp_path: Path) -> None:
    def data(batch: float, gradient: float) -> dict[str, object]:
        return {
            "Functional.linear.0.forward": api([tensor(batch)], [tensor(batch)]),
            "Tensor.add_.0.forward": api([tensor(), tensor(gradient)], [tensor(gradient)]),
        }

    for rank in (0, 1):
        write_dump(tmp_path / "t" / f"rank{rank}", data(9.0 if rank == guilty else 1.0, 5.0))
        write_dump(tmp_path / "g" / f"rank{rank}", data(1.0, 4.0))
    text = "\n".join(line.text for line in describe(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o")))
    assert f"\nFirst difference of rank{guilty}: inputs of the first call differ" in text
    assert f"\n  First difference of rank{1 - guilty}: input.1 of Tensor.add_.0.forward differs" in text


def test_what_follows_a_call_without_partner_in_the_same_dump(tmp_path: Path) -> None:
    """The title is not repeated, and a shifted sequence is not called a value."""
    fused = {"Functional.rms_norm.0.forward": api([tensor()], [tensor()]), "Tensor.__add__.0.forward": api([tensor(5.0)], [tensor(5.0)])}
    plain = {"Tensor.__add__.0.forward": api([tensor()], [tensor(2.0)])}
    parents: dict[str, dict[str, str | None]] = {
        "t": {"Tensor.__add__.0.forward": "Module.b.B.forward.0", "Functional.rms_norm.0.forward": "Module.n.N.forward.0"},
        "g": {"Tensor.__add__.0.forward": "Module.n.N.forward.0"},
    }
    for side, data in (("t", fused), ("g", plain)):
        for step in (0, 1):
            write_dump(tmp_path / side / f"step{step}" / "rank0", data, construct=parents[side])
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o", Options(fuzzy=True))
    text = "\n".join(line.text for line in describe(outcome))
    assert "First difference of step0 rank0: the call Functional.rms_norm.0.forward is in the target only" in text
    assert "\nNext difference: the sequence of calls: Tensor.__add__.0.forward is in Module.b.B.forward.0" in text


def test_of_two_ranks_with_other_gradients_the_one_that_makes_another_call_is_named(tmp_path: Path) -> None:
    """The extra call changes nothing that counts where it stands, and the reduced gradients differ on every rank."""
    outer = "Module.m.M.forward.0"
    for rank in (0, 1):
        for side, gradient in (("t", 3.0), ("g", 2.0)):
            data = {outer: module([tensor(1.0)], [tensor(4.0)]), "Module.m.M.parameters_grad.0": {"weight": [tensor(gradient)]}}
            construct: dict[str, str | None] = {outer: None}
            if side == "t" and rank == 1:
                data = {"Torch.mul.0.forward": api([tensor(4.0)], [tensor(4.0)]), **data}
                construct["Torch.mul.0.forward"] = outer
            write_dump(tmp_path / side / "step0" / f"rank{rank}", data, construct=construct)
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o")
    text = [line.text for line in describe(outcome)]
    assert "rank 1)" in text[0]
    assert any(line.startswith("  First difference of step0 rank0: ") for line in text)
