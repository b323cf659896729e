"""The last sentence says why the exit code is 1, and does not say "First difference" beside 0."""

from __future__ import annotations

from pathlib import Path

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.outcome import Outcome

from .dumps import Json, api, backward, tensor, tensor_call, write_dump
from .net import Net


def run(tmp_path: Path, target: Json, golden: Json) -> tuple[int, str]:
    outcome = compare(write_dump(tmp_path / "t", target, stack={}), write_dump(tmp_path / "g", golden, stack={}), tmp_path / "o")
    return told(outcome)


def told(outcome: Outcome) -> tuple[int, str]:
    return outcome.exit_code, "\n".join(line.text for line in describe(outcome))


def test_another_dtype_on_each_side(tmp_path: Path) -> None:
    data = {dtype: {"Torch.a.0.forward": api([tensor(1.0, dtype)], [tensor(2.0, dtype)])} for dtype in ("float64", "float32")}
    code, text = run(tmp_path, data["float64"], data["float32"])
    assert code == 1
    assert text.endswith(
        "\nValues agree up to rounding; 2 rows have another dtype on each side"
        " (first: Torch.a.0.forward input.0: torch.float64 / torch.float32)"
        "; if that is meant, --accept-dtype (accept_dtype=True) makes it no error"
    )


def test_rows_of_one_side(tmp_path: Path) -> None:
    call = {"Torch.a.0.forward": api([tensor()], [tensor()])}
    code, text = run(tmp_path, {"Torch.a.0.forward": api([tensor()], [tensor(), tensor()])}, call)
    assert code == 1
    assert text.endswith("\nValues agree; 1 row stands on one side only (first: Torch.a.0.forward output.1, in the target only)")


def test_tensor_files_that_cannot_be_read(tmp_path: Path) -> None:
    paths = [tensor_call(tmp_path / side, [1.0]) for side in "tg"]
    (paths[0].parent / "dump_tensor_data" / "Torch.op.0.forward.output.0.pt").unlink()
    code, text = told(compare(*paths, tmp_path / "o"))
    assert code == 1
    assert "\nThe values that could be compared agree; 1 tensor file could not be read (first: Torch.op.0.forward output.0: " in text
    assert "No difference" not in text


def test_counts_of_all_steps_are_added(tmp_path: Path) -> None:
    for step in (0, 1):
        for side, dtype in (("t", "float64"), ("g", "float32")):
            write_dump(tmp_path / side / f"step{step}" / "rank0", {"Torch.a.0.forward": api([], [tensor(2.0, dtype)])}, stack={})
    code, text = told(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o"))
    assert code == 1 and "; 2 rows have another dtype on each side (first: " in text


def test_a_step_of_one_side(tmp_path: Path) -> None:
    for side, steps in (("t", (0, 1)), ("g", (0,))):
        for step in steps:
            write_dump(tmp_path / side / f"step{step}" / "rank0", {"Torch.a.0.forward": api([], [tensor()])}, stack={})
    code, text = told(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o"))
    assert code == 1 and text.endswith("\nValues agree; step1 is in the target only")


def test_a_difference_within_rounding_is_no_first_difference(tmp_path: Path) -> None:
    def data(value: float) -> Json:
        return {"Torch.a.0.forward": api([tensor()], [tensor(value)]), "Torch.b.0.forward": api([tensor(value)], [tensor()])}

    code, text = run(tmp_path, data(2.0), data(2.0 + 1e-7))
    assert code == 0
    assert "\nNo difference beyond rounding; the first within rounding: Torch.a.0.forward (inputs equal, output differs)\n" in text
    assert "First difference" not in text


def test_within_rounding_beside_rows_of_one_side(tmp_path: Path) -> None:
    target = {"Torch.a.0.forward": api([tensor()], [tensor(2.0 + 1e-7), tensor()])}
    code, text = run(tmp_path, target, {"Torch.a.0.forward": api([tensor()], [tensor(2.0)])})
    assert code == 1
    assert "Values agree up to rounding; 1 row stands on one side only (first: Torch.a.0.forward output.1, in the target only)" in text
    assert "The first difference within rounding: Torch.a.0.forward" in text


def test_equal_runs_have_no_reasons(tmp_path: Path) -> None:
    code, text = run(tmp_path, Net().entries()[0], Net().entries()[0])
    assert code == 0 and text.endswith("\nNo difference in what both sides recorded.")


def test_shifted_gradients_are_counted_as_what_they_are(tmp_path: Path) -> None:
    def data(frozen: bool) -> Json:
        slots = [tensor(3.0, shape=(4,))] if frozen else [tensor(2.0, shape=(4,)), tensor(3.0, shape=(4,))]
        call = api([tensor(), tensor(shape=(4, 4), requires_grad=not frozen)], [tensor(requires_grad=True)])
        return {"Functional.linear.0.forward": call, "Functional.linear.0.backward": backward([tensor()], slots)}

    code, text = run(tmp_path, data(True), data(False))
    assert code == 1
    assert "1 not compared although recorded; the first: Functional.linear.0.backward.output.0: requires_grad of the inputs" in text
    assert "First difference: requires_grad of input.1 (`weight`) of Functional.linear.0.forward differs: target False, golden True" in text
    assert "No value differs in what both sides recorded." in text
