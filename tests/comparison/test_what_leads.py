"""What the first sentence may claim: weights do not round, a mask is not known by its extremes, a missing value is no number."""

from __future__ import annotations

from pathlib import Path

import pytest

from comparison.dumps import api, backward, module, read_csv, tensor, write_dump
from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.judging.reference import CLOSER, VERDICTS, Tally, conclusion_of


def _text(tmp_path: Path, target: dict[str, object], golden: dict[str, object], construct: dict[str, str | None] | None = None) -> str:
    ours = write_dump(tmp_path / "t", target, construct=construct)
    theirs = write_dump(tmp_path / "g", golden, construct=construct)
    return "\n".join(line.text for line in describe(compare(ours, theirs, tmp_path / "o")))


def test_a_weight_that_differs_a_little_leads_though_the_output_differs_more(tmp_path: Path) -> None:
    def run(weight: float, out: float) -> dict[str, object]:
        return {
            "Module.up.Linear.forward.0": module([tensor(1.0)], [tensor(2.0)], weight=tensor(weight)),
            "Module.down.Linear.forward.0": module([tensor(2.0)], [tensor(out)], weight=tensor(5.0)),
        }

    text = _text(tmp_path, run(4.0 + 1e-6, 3.5), run(4.0, 3.0))
    assert "`up`" in text.splitlines()[0] and "weight" in text.splitlines()[0]
    assert "First difference beyond rounding: Module.down.Linear.forward.0" in text


def test_a_mask_is_not_equal_because_its_extremes_are(tmp_path: Path) -> None:
    mask = tensor(dtype="bool", Max=True, Min=False, Mean=None, Norm=None)

    def run(mask: object, out: float) -> dict[str, object]:
        return {"Torch.exp.0.forward": api([tensor(1.0)], [tensor(2.0)]), "Tensor.sum.0.forward": api([mask], [tensor(out)])}

    assert "nputs equal as far as recorded" in _text(tmp_path / "open", run(mask, 4.0), run(mask, 3.0))
    full = {**mask, "Min": True}
    assert "nputs equal as far as recorded" not in _text(tmp_path / "known", run(full, 4.0), run(full, 3.0))


def test_a_value_that_one_side_lacks_is_called_a_tensor(tmp_path: Path) -> None:
    def run(gradient: object) -> dict[str, object]:
        return {
            "Torch.exp.0.forward": api([tensor(1.0)], [tensor(2.0)]),
            "Torch.exp.0.backward": backward([tensor(1.0)], [gradient]),
        }

    text = _text(tmp_path, run(None), run(tensor(2.0)))
    assert "output.0: None in the target, a tensor (torch.float32 [2, 3]) in the golden dump" in text


def _normalised(weight: object, out: float, gradients: dict[str, object]) -> dict[str, object]:
    name = "Functional.layer_norm.0"
    weighted = {} if weight is None else {"Module.n.LayerNorm.parameters_grad.0": gradients}
    return {
        f"{name}.forward": api([tensor(1.0), [{"type": "int", "value": 3}], weight], [tensor(out)]),
        f"{name}.backward": backward([tensor(3.0)], [tensor(4.0)]),
        **weighted,
    }


def test_a_trained_tensor_that_one_side_lacks_leads_though_the_output_agrees(tmp_path: Path) -> None:
    """A LayerNorm that has lost its weight, which was 1: the output is the same, and the gradient is not there."""
    without, with_it = _normalised(None, 2.0, {}), _normalised(tensor(1.0, requires_grad=True), 2.0, {"weight": [tensor(6.0)]})
    lines = _text(tmp_path, without, with_it).splitlines()
    assert lines[0] == "Argument `weight` of `layer_norm` differs (forward)"
    assert any(line.startswith("First difference: argument") and "Functional.layer_norm.0.forward" in line for line in lines)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("out", [2.0, 5.0])
def test_a_value_against_none_has_one_result_whatever_the_call_returns(tmp_path: Path, trained: bool, out: float) -> None:
    without, with_it = _normalised(None, 2.0, {}), _normalised(tensor(1.0, requires_grad=trained), out, {"weight": [tensor(6.0)]})
    ours, theirs = write_dump(tmp_path / "t", without), write_dump(tmp_path / "g", with_it)
    (report,) = compare(ours, theirs, tmp_path / "o").reports
    assert report.csv is not None
    rows = read_csv(report.csv)
    (row,) = (row for row in rows if row["NPU Name"] == "Functional.layer_norm.0.forward.input.2")
    assert row["Result"] == ("error" if trained else "unmatched")
    assert "besides" not in row["Err_message"]
    assert trained or ("what the call returns agrees" in row["Err_message"]) is (out == 2.0)
    assert sum(report.counts.values()) == len(rows) == report.matched + report.counts["unmatched"]


def test_the_reference_does_not_clear_what_it_cannot_judge() -> None:
    undecided = Tally(dict.fromkeys(VERDICTS, 0), "")
    assert "does not decide" in conclusion_of([undecided], True)
    assert "does not decide" not in conclusion_of([undecided], False)
    assert "speaks for the target" in conclusion_of([Tally({**dict.fromkeys(VERDICTS, 0), CLOSER: 1}, "")], True)


def test_what_follows_from_a_value_stands_below_it_and_not_below_requires_grad(tmp_path: Path) -> None:
    def run(trained: bool, out: float) -> dict[str, object]:
        return {
            "Torch.exp.0.forward": api([tensor(1.0, requires_grad=trained)], [tensor(2.0)]),
            "Torch.log.0.forward": api([tensor(2.0)], [tensor(out)]),
            "Torch.sin.0.forward": api([tensor(out)], [tensor(out + 1)]),
        }

    lines = _text(tmp_path, run(False, 5.0), run(True, 4.0)).splitlines()
    headline = next(n for n, line in enumerate(lines) if line.startswith("First value that differs: Torch.log.0.forward"))
    assert any("requires_grad" in line for line in lines[:headline])
    below = [n > headline for n, line in enumerate(lines) if "Torch.sin.0.forward" in line]
    assert below and all(below)
