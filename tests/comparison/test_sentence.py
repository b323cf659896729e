"""The first sentence, for each kind of difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.sentence import lead, opening

from .dumps import api, module, tensor, write_dump
from .net import Net


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"fc_gain": 2.0}, "Inputs equal, weights equal, `linear` in `blocks.0.fc` differs (forward, step 3): model.py:100"),
        ({"relu_gain": 1.5}, "Inputs equal, `relu` in `blocks.0` differs (forward, step 3): model.py:102"),
        ({"between": 1.5}, "Inputs equal, the code of `blocks.0` before it calls `relu` differs (forward, step 3): model.py:102"),
        ({"fc_weight": 3.0}, "Inputs equal, weight `weight` of `blocks.0.fc` differs (forward, step 3): model.py:101"),
        ({"data": 3.0}, "The data differs: `input.0` of the first call, `linear` in `blocks.0.fc` (forward, step 3): model.py:100"),
        (
            {"gradient_gain": 3.0},
            "Everything before it equal, the gradient of `weight` in `blocks.0.fc` differs; it may hold an earlier step's gradient "
            "(zero_grad) (gradients, step 3): model.py:101",
        ),
        (
            {"fc_backward_gain": 3.0},
            "Incoming gradients equal, `linear` in `blocks.0.fc` differs (backward, step 3): model.py:100",
        ),
    ],
)
def test_each_kind(fault: dict[str, Any], expected: str, tmp_path: Path) -> None:
    Net(**fault).write(tmp_path / "t/step3/rank0")
    Net().write(tmp_path / "g/step3/rank0")
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o")
    assert lead(outcome) == expected
    assert next(iter(describe(outcome))).text == lead(outcome)


def test_a_module_by_its_path(tmp_path: Path) -> None:
    def data(value: float) -> dict[str, object]:
        return {"Module.layers.3.mlp.MLP.forward.0": module([tensor()], [tensor(value)], weight=tensor())}

    outcome = compare(write_dump(tmp_path / "t", data(1.0)), write_dump(tmp_path / "g", data(2.0)), tmp_path / "o")
    assert lead(outcome) == "Inputs equal, weights equal, `layers.3.mlp` differs (forward)"


def test_the_rank_is_named_where_there_are_several(tmp_path: Path) -> None:
    for rank in (0, 1):
        Net(relu_gain=1.0 + 0.5 * rank).write(tmp_path / f"t/step0/rank{rank}")
        Net().write(tmp_path / f"g/step0/rank{rank}")
    assert "(forward, step 0, rank 1)" in lead(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o"))


def test_an_argument(tmp_path: Path) -> None:
    def data(eps: float) -> dict[str, object]:
        call = api([tensor(), {"type": "float", "value": eps}], [tensor(eps)])
        return {"Torch.z.0.forward": api([tensor()], [tensor()]), "Torch.a.0.forward": call}

    outcome = compare(write_dump(tmp_path / "t", data(1e-3)), write_dump(tmp_path / "g", data(1e-5)), tmp_path / "o")
    assert lead(outcome) == "Argument `input.1` of `a` differs (forward)"


def test_a_call_without_partner_before_a_difference(tmp_path: Path) -> None:
    Net(dropped=("Functional.relu.0.forward",), scale=4.0).write(tmp_path / "t/step3/rank0")
    Net(relu_gain=2.0).write(tmp_path / "g/step3/rank0")
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o")
    assert lead(outcome) == "`relu` in `blocks.0` is in the golden dump only (forward, step 3): model.py:102"


def test_where_no_value_differs_the_opening_says_what_else_does(tmp_path: Path) -> None:
    outcome = compare(Net(dropped=("Functional.relu",)).write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    assert lead(outcome) == ""
    assert opening(outcome).startswith("Values agree; 4 rows")


def test_a_saved_value(tmp_path: Path) -> None:
    def side(name: str, value: float) -> Path:
        return write_dump(tmp_path / name / "step1/rank0", {"x2.0.debug": tensor(value)}, name="debug.json", level="debug").parents[2]

    assert lead(compare(side("t", 1.0), side("g", 2.0), tmp_path / "o")) == "Saved value `x2` differs (step 1)"


def test_no_difference_no_sentence(tmp_path: Path) -> None:
    outcome = compare(Net().write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    assert lead(outcome) == ""
    assert next(iter(describe(outcome))).text.startswith("41 rows matched")
