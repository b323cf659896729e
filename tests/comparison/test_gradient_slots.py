"""requires_grad that differs, and the gradients that it moves to other places."""

from __future__ import annotations

from pathlib import Path

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe, headline
from msprobe.comparison.outcome import PairReport

from .dumps import api, backward, module, read_csv, tensor, write_dump


def results(report: PairReport) -> dict[str, str]:
    return {row["NPU Name"]: row["Result"] for row in read_csv(report.csv)}


def _frozen(frozen: bool, bias_gradient: tuple[int, ...] = (4, 4)) -> dict[str, object]:
    module_name = "Module.fc.Linear.forward.0"
    weight = tensor(5.0, shape=(4, 4), requires_grad=not frozen)
    slots = [tensor(3.0, shape=(4, 4))] if frozen else [tensor(2.0, shape=bias_gradient), tensor(3.0, shape=(4, 4))]
    return {
        "Functional.linear.0.forward": api([tensor(), weight], [tensor(requires_grad=True)]),
        module_name: module([tensor()], [tensor(requires_grad=True)], weight=weight, bias=tensor(requires_grad=not frozen)),
        "Functional.linear.0.backward": backward([tensor()], slots),
        "Torch.after.0.forward": api([tensor(7.0 if frozen else 8.0)], [tensor()]),
    }


def test_requires_grad_is_the_first_difference_and_its_gradients_are_not_measured(tmp_path: Path) -> None:
    construct = {"Functional.linear.0.forward": "Module.fc.Linear.forward.0", "Module.fc.Linear.forward.0": None}
    target = write_dump(tmp_path / "t", _frozen(True), construct=construct)
    golden = write_dump(tmp_path / "g", _frozen(False), construct=construct)
    outcome = compare(target, golden, tmp_path / "o")
    first, value = outcome.reports[0].findings.first, outcome.reports[0].findings.value
    assert first is not None and value is not None
    assert headline(first) == (
        "requires_grad of parameters weight and bias of Module.fc.Linear.forward.0 differs: target False, golden True"
    )
    assert value.call.name == "Torch.after.0.forward"
    words = results(outcome.reports[0])
    assert words["Functional.linear.0.backward.output.0"] == "not compared"
    assert words["Functional.linear.0.forward.input.1"] == "error"
    text = "\n".join(line.text for line in describe(outcome))
    assert "First value that differs: input.0 of Torch.after.0.forward differs" in text


def test_gradients_in_equal_places_are_measured_whatever_requires_grad_says(tmp_path: Path) -> None:
    def data(flag: bool, gradient: float) -> dict[str, object]:
        return {
            "Functional.relu.0.forward": api([tensor(requires_grad=flag)], [tensor(requires_grad=True)]),
            "Functional.relu.0.backward": backward([tensor()], [tensor(gradient)]),
        }

    outcome = compare(write_dump(tmp_path / "t", data(True, 5.0)), write_dump(tmp_path / "g", data(False, 6.0)), tmp_path / "o")
    assert results(outcome.reports[0])["Functional.relu.0.backward.output.0"] == "error"


def test_requires_grad_of_an_output_alone(tmp_path: Path) -> None:
    data = [{"Torch.a.0.forward": api([tensor()], [tensor(requires_grad=flag)])} for flag in (False, True)]
    first = compare(write_dump(tmp_path / "t", data[0]), write_dump(tmp_path / "g", data[1]), tmp_path / "o").reports[0].findings.first
    assert first is not None
    expected = "requires_grad of output.0 of Torch.a.0.forward differs: target False, golden True; that of its inputs agrees"
    assert headline(first) == expected


def test_gradients_in_other_places_find_each_other_where_their_shapes_tell(tmp_path: Path) -> None:
    construct = {"Functional.linear.0.forward": "Module.fc.Linear.forward.0", "Module.fc.Linear.forward.0": None}
    target = write_dump(tmp_path / "t", _frozen(True), construct=construct)
    golden = write_dump(tmp_path / "g", _frozen(False, (4,)), construct=construct)
    rows = read_csv(compare(target, golden, tmp_path / "o").reports[0].csv)
    of_slots = [row for row in rows if "backward.output" in row["NPU Name"] + row["Bench Name"]]
    found = {(row["NPU Name"], row["Bench Name"]): row["Result"] for row in of_slots}
    name = "Functional.linear.0.backward.output"
    assert found == {(f"{name}.0", f"{name}.1"): "pass", ("N/A", f"{name}.0"): "unmatched"}


def test_gradients_of_equal_shapes_find_each_other_where_requires_grad_tells(tmp_path: Path) -> None:
    def data(flag: bool) -> dict[str, object]:
        slots = [tensor(2.0), tensor(3.0)] if flag else [tensor(3.0)]
        return {
            "Torch.add.0.forward": api([tensor(requires_grad=flag), tensor(requires_grad=True)], [tensor(requires_grad=True)]),
            "Torch.add.0.backward": backward([tensor()], slots),
        }

    outcome = compare(write_dump(tmp_path / "t", data(False)), write_dump(tmp_path / "g", data(True)), tmp_path / "o")
    rows = {row["Bench Name"]: row["NPU Name"] for row in read_csv(outcome.reports[0].csv)}
    assert rows["Torch.add.0.backward.output.1"] == "Torch.add.0.backward.output.0"
    assert rows["Torch.add.0.backward.output.0"] == "N/A"
