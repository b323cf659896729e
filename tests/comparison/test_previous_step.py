"""Step 0 is the same, step 1 begins with other parameters: what step 0 says."""

from __future__ import annotations

from pathlib import Path

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe

from .dumps import Json, api, backward, module, tensor, write_dump

FC = "Module.fc.Dense"


def step(weight: float, gradient: float | None, came_in: float = 1.0, *, data: float = 1.0) -> Json:
    entries: Json = {f"{FC}.forward.0": module([tensor(data)], [tensor(weight)], weight=tensor(weight))}
    if gradient is not None:
        entries[f"{FC}.backward.0"] = backward([tensor(came_in)], [tensor(gradient)])
        entries[f"{FC}.parameters_grad.0"] = {"weight": [tensor(gradient)]}
    return entries


def told(tmp_path: Path, target: list[Json | None], golden: list[Json | None]) -> str:
    for side, steps in (("t", target), ("g", golden)):
        for number, data in enumerate(steps):
            if data is not None:
                write_dump(tmp_path / side / f"step{number}" / "rank0", data)
    return "\n".join(line.text for line in describe(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o")))


def test_the_gradient_that_differs_less_than_counts(tmp_path: Path) -> None:
    """Nothing is bit-identical (two machines), so that slight differences count as equal; one gradient multiplies what came in by 30."""
    target = [step(1.0, 2.0001, 1.000001, data=1.000001), step(1.5, 2.0, 1.000001, data=1.000001)]
    golden = [step(1.000001, 2.0), step(1.2, 2.000001)]
    text = told(tmp_path, target, golden)
    assert "First difference of step1 rank0: the parameter weight of Module.fc.Dense.forward.0 differs" in text
    assert "  it comes from step 0: the gradient Module.fc.Dense.parameters_grad.0.weight differs there (relative size " in text
    assert "  in step 0 it began in Module.fc.Dense.backward.0 (relative size " in text


def test_the_gradient_that_differs_itself_is_the_first_difference(tmp_path: Path) -> None:
    text = told(tmp_path, [step(1.0, 2.5), step(1.5, 2.0)], [step(1.0, 2.0), step(1.2, 2.0)])
    assert "First difference of step0 rank0: Module.fc.Dense.backward.0 (inputs equal, output differs)" in text


def test_a_gradient_within_rounding_and_parameters_beyond(tmp_path: Path) -> None:
    text = told(tmp_path, [step(1.0, 2.000001), step(1.5, 2.0)], [step(1.0, 2.0), step(1.2, 2.0)])
    assert "First difference of step0 rank0: Module.fc.Dense.backward.0" in text
    assert "First difference beyond rounding of step1 rank0: the parameter weight of Module.fc.Dense.forward.0 differs" in text
    assert "it comes from step 0: the gradient Module.fc.Dense.parameters_grad.0.weight differs there" in text


def test_equal_gradients_leave_what_comes_after_the_backward_pass(tmp_path: Path) -> None:
    """Recorded is what the backward pass gave. A script may scale it or clip it before the optimizer takes it, by code that no dump
    holds: the optimizer alone is not to blame."""
    text = told(tmp_path, [step(1.0, 2.0), step(1.5, 2.0)], [step(1.0, 2.0), step(1.2, 2.0)])
    assert (
        "  every gradient of a parameter of step 0 agrees in every bit (1 compared): it was made after the backward pass, by the optimizer"
        " (its settings, its state) or by code around it that was not recorded: what scales, clips or averages gradients before the"
        " optimizer's step, or changes parameters after it"
    ) in text.splitlines()
    assert "the optimizer made it" not in text


def test_no_gradients(tmp_path: Path) -> None:
    text = told(tmp_path, [step(1.0, None), step(1.5, None)], [step(1.0, None), step(1.2, None)])
    assert "of step 0 no gradient was compared: record its backward pass" in text


def test_a_gap(tmp_path: Path) -> None:
    text = told(tmp_path, [step(1.0, 2.0), None, step(1.5, 2.0)], [step(1.0, 2.0), None, step(1.2, 2.0)])
    assert "the step before is step 1 and was not compared" in text


def test_the_first_step(tmp_path: Path) -> None:
    text = told(tmp_path, [None, None, step(1.5, 2.0)], [None, None, step(1.2, 2.0)])
    assert "step 2 is the first that was compared" in text
    text = told(tmp_path / "0", [step(1.5, 2.0)], [step(1.2, 2.0)])
    assert "the first that was compared" not in text


def test_other_differences_are_not_blamed_on_the_step_before(tmp_path: Path) -> None:
    text = told(tmp_path, [step(1.0, 2.0), step(1.0, 2.0, data=3.0)], [step(1.0, 2.0), step(1.0, 2.0)])
    assert "inputs of the first call differ" in text
    assert "optimizer" not in text


def calls(weight: float, activation: float) -> Json:
    """A step at level L1: what comes out of the first call is changed by code that is not recorded."""
    trained = {"requires_grad": True}
    return {
        "Functional.linear.0.forward": api([tensor(), tensor(7.0, **trained)], [tensor(2.0, **trained)]),
        "Functional.linear.1.forward": api([tensor(activation, **trained), tensor(weight, **trained)], [tensor(4.0, **trained)]),
        "Functional.linear.1.backward": backward([tensor()], [tensor(), tensor()]),
    }


def test_an_activation_is_no_parameter(tmp_path: Path) -> None:
    text = told(tmp_path, [calls(5.0, 2.0), calls(5.0, 3.0)], [calls(5.0, 2.0)] * 2)
    assert "input.0 of Functional.linear.1.forward differs" in text
    assert "optimizer" not in text and "step 0" not in text


def test_a_weight_is_one_where_no_module_was_recorded(tmp_path: Path) -> None:
    text = told(tmp_path, [calls(5.0, 2.0), calls(6.0, 2.0)], [calls(5.0, 2.0)] * 2)
    assert "`weight` of `linear` differs" in text
    assert "every backward call of step 0 agrees in every bit (1 compared): it was made after the backward pass" in text


def test_an_activation_that_a_module_takes_in(tmp_path: Path) -> None:
    def forward(value: float) -> Json:
        given = tensor(value, requires_grad=True)
        return {f"{FC}.forward.0": module([tensor()], [tensor(2.0)]), "Module.b.Dense.forward.0": module([given], [tensor(3.0)])}

    text = told(tmp_path, [forward(2.0), forward(2.5)], [forward(2.0)] * 2)
    assert "input.0 of Module.b.Dense.forward.0 differs" in text and "step 0" not in text
