"""Two debug.json: what save() wrote in two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.saved_lines import SavedLines
from msprobe.comparison.sentence import lead

from .dumps import frame, read_csv, save_array, tensor, write_dump


def saved(directory: Path, **values: Any) -> Path:
    """A directory with the debug.json of values `y` (dots as __); gives the directory."""
    data = {
        name.replace("__", "."): save_array(directory, name.replace("__", ".") + ".pt", value) if isinstance(value, list) else value
        for name, value in values.items()
    }
    write_dump(directory, data, task="tensor", level="debug", name="debug.json")
    return directory


def told(outcome: Any) -> str:
    return "\n".join(line.text for line in describe(outcome))


ONE = {"x__0__debug": [1.0, 2.0], "y__0__debug": [3.0, 4.0], "y_grad__0__debug": [5.0, 6.0], "z__0__debug": [7.0, 8.0]}


@pytest.mark.parametrize("form", ["file", "process", "step", "root"])
def test_every_kind_of_path(form: str, tmp_path: Path) -> None:
    for side, y in (("t", [3.0, 9.0]), ("g", [3.0, 4.0])):
        saved(tmp_path / side / "step0" / "rank0", **(ONE | {"y__0__debug": y}))
    below = {"file": "step0/rank0/debug.json", "process": "step0/rank0", "step": "step0", "root": "."}[form]
    outcome = compare(tmp_path / "t" / below, tmp_path / "g" / below, tmp_path / "out")
    assert outcome.exit_code == 1
    assert [report.csv.name.split("_2")[0] for report in outcome.reports] == (
        ["debug_compare_result"] if form == "file" else ["debug_compare_result_rank0"]
    )
    assert "First difference: saved value y.0.debug differs" in told(outcome)
    assert "  y.0.debug (torch.float" in told(outcome)


def test_equal_ones(tmp_path: Path) -> None:
    outcome = compare(saved(tmp_path / "t", **ONE), saved(tmp_path / "g", **ONE), tmp_path / "out")
    assert outcome.exit_code == 0
    assert "No difference" in told(outcome)


def test_a_value_saved_later_comes_before_a_gradient(tmp_path: Path) -> None:
    """The gradient of y stands before z in the file, and came after it."""
    target = saved(tmp_path / "t", **(ONE | {"y_grad__0__debug": [5.0, 9.0], "z__0__debug": [7.0, 9.0]}))
    outcome = compare(target, saved(tmp_path / "g", **ONE), tmp_path / "out")
    assert "First difference: saved value z.0.debug differs" in told(outcome)


def test_the_last_values_gradient_comes_first(tmp_path: Path) -> None:
    base = ONE | {"z_grad__0__debug": [1.0, 1.0]}
    target = saved(tmp_path / "t", **(base | {"y_grad__0__debug": [5.0, 9.0], "z_grad__0__debug": [7.0, 9.0]}))
    outcome = compare(target, saved(tmp_path / "g", **base), tmp_path / "out")
    assert "First difference: saved value z_grad.0.debug differs" in told(outcome)


def test_nested_values_and_second_passes(tmp_path: Path) -> None:
    for side, last in (("t", 3.0), ("g", 4.0)):
        record = {"a": [save_array(tmp_path / side, "n.0.debug.a.0.pt", [1.0, last]), None], "b": {"type": "int", "value": 3}}
        passed = save_array(tmp_path / side, "n_grad.0.debug.pass1.pt", [1.0, last])
        saved(tmp_path / side, n__0__debug=record, n_grad__0__debug__pass1={"a": [passed, None], "b": None})
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "out")
    assert "First difference: a.0 of saved value n.0.debug differs" in told(outcome)
    assert (outcome.reports[0].counts["error"], outcome.reports[0].counts["warning"]) == (1, 1)


def test_one_side_has_another_value(tmp_path: Path) -> None:
    target = saved(tmp_path / "t", **ONE)
    golden = saved(tmp_path / "g", **{name: value for name, value in ONE.items() if not name.startswith("z")})
    outcome = compare(target, golden, tmp_path / "out")
    assert outcome.exit_code == 1
    assert "z.0.debug" in told(outcome)


def test_a_dump_and_a_debug_json_in_one_directory(tmp_path: Path) -> None:
    """What both sides have is compared."""
    for side in ("t", "g"):
        saved(tmp_path / side / "step0" / "rank0", **ONE)
    write_dump(tmp_path / "t" / "step0" / "rank0", {"Torch.add.0.forward": {"input_args": [], "output": []}}, task="tensor")
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "out")
    assert outcome.exit_code == 0 and outcome.reports[0].csv.name.startswith("debug_compare_result")


def test_a_tensor_and_a_none_differ_without_an_infinity(tmp_path: Path) -> None:
    target = saved(tmp_path / "t", **ONE)
    golden = saved(tmp_path / "g", **ONE)
    file = golden / "debug.json"
    content = json.loads(file.read_text())
    content["data"]["y.0.debug"] = None
    file.write_text(json.dumps(content))
    outcome = compare(target, golden, tmp_path / "out")
    assert "First difference: saved value y.0.debug differs" in told(outcome)
    assert "NaN or Inf" not in told(outcome)


def verdicts(outcome: Any) -> dict[str, tuple[str, str]]:
    return {row["NPU Name"]: (row["Result"], row["Err_message"]) for row in read_csv(outcome.reports[0].csv)}


def test_a_saved_value_is_not_held_against_inputs_and_gradients_follow(tmp_path: Path) -> None:
    changed = ONE | {"y__0__debug": [30.0, -4.0], "y_grad__0__debug": [50.0, -6.0], "z__0__debug": [70.0, -8.0]}
    found = verdicts(compare(saved(tmp_path / "t", **changed), saved(tmp_path / "g", **ONE), tmp_path / "out"))
    assert found["x.0.debug"][0] == "pass"
    for name in ("y.0.debug", "z.0.debug"):  # z may have been made of anything: nothing says that it follows
        assert found[name][0] == "error" and "The saved value differs." in found[name][1]
    assert found["y_grad.0.debug"][0] == "warning" and "follows: The gradient of the saved value" in found["y_grad.0.debug"][1]
    assert not any("input" in message for _, message in found.values())


def test_saved_statistics_are_not_held_against_inputs(tmp_path: Path) -> None:
    sides = [
        write_dump(tmp_path / side, {"y.0.debug": tensor(value), "y_grad.0.debug": tensor(value)}, level="debug", name="debug.json")
        for side, value in (("t", 9.0), ("g", 1.0))
    ]
    found = verdicts(compare(*sides, tmp_path / "out"))
    assert found["y.0.debug"][0] == "error" and found["y_grad.0.debug"][0] == "warning"
    assert not any("input" in message or "NormRelativeErr" in message for _, message in found.values())


def test_a_gradient_where_no_value_differs_is_the_origin(tmp_path: Path) -> None:
    target = saved(tmp_path / "t", **(ONE | {"y_grad__0__debug": [50.0, -6.0]}))
    found = verdicts(compare(target, saved(tmp_path / "g", **ONE), tmp_path / "o"))
    assert found["y_grad.0.debug"][0] == "error"


def with_lines(directory: Path, saved_at: Any, y: float = 1.0) -> Path:
    data = {name: tensor(y) for name in ("y.0.debug", "y_grad.0.debug", "y.1.debug")}
    write_dump(directory, data, level="debug", name="debug.json")
    (directory / "meta.json").write_text(json.dumps({"saved_at": saved_at}))
    return directory


LINE, OTHER = (frame("/home/me/train.py", number, "step", f"save(y, {number})") for number in (7, 8))


def test_the_line_that_saved_it_is_told(tmp_path: Path) -> None:
    lines = [[["y.0.debug"], [LINE]], [["y.1.debug"], [OTHER]]]
    outcome = compare(with_lines(tmp_path / "t", lines, 2.0), with_lines(tmp_path / "g", lines), tmp_path / "out")
    assert lead(outcome) == "Saved value `y` differs: train.py:7"
    assert "  at /home/me/train.py:7 in step: save(y, 7)" in told(outcome)
    assert "NPU_Stack_Info" not in read_csv(outcome.reports[0].csv)[0]  # a debug.json has no stack.json beside it, nor its column


@pytest.mark.parametrize("damaged", [7, {"a": 1}, [[["y.0.debug"], 3], 5, [[1], ["x"]], ["y"]], [[["no name"], ["no frame"]]]])
def test_damaged_lines_cost_nothing_but_the_line(damaged: Any, tmp_path: Path) -> None:
    outcome = compare(with_lines(tmp_path / "t", damaged, 2.0), with_lines(tmp_path / "g", damaged), tmp_path / "out")
    assert lead(outcome) == "Saved value `y` differs"


def test_lines_of_keys_that_are_not_listed(tmp_path: Path) -> None:
    lines = SavedLines([[["y.0.debug", "y.5.debug"], [LINE]], [["y.2.debug"], [OTHER]]])
    assert [lines[f"y.{n}.debug"] for n in range(7)] == [[LINE]] * 2 + [[OTHER]] * 3 + [[LINE]] * 2
    assert lines["y_grad.3.debug.pass1"] == [OTHER] and lines["y_grad.0.debug"] == [LINE]
    assert lines.get("x.0.debug") is None and lines.get("Torch.a.0.forward") is None and len(lines) == 3
