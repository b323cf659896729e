"""One test for each fault of the existing tool that concerns its compare command: here the outcome is the right one.

The numbers are those of the list that was drawn up when that tool was examined. Faults of other commands (F21 to F24) have theirs there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .commands import Ran, compare
from .dumps import Json, api, backward, malicious, module, save_array, statistics, tensor, tensor_call, truncated, write_dump

Compare = Callable[..., Ran]
OUTPUT = "Torch.op.0.forward.output.0"


@pytest.fixture
def dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    """Compares two `data` of statistics dumps."""

    def run(target: Json, golden: Json, *options: str, **how: Any) -> Ran:
        paths = [write_dump(tmp_path / side, data, **how) for side, data in (("t", target), ("g", golden))]
        return compare(capsys, *paths, tmp_path / "out", *options)

    return run


@pytest.fixture
def tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    """Compares two arrays that one call put out."""

    def run(target: Any, golden: Any, spoil: Callable[[Path], None] | None = None) -> Ran:
        paths = [tensor_call(tmp_path / side, np.asarray(array)) for side, array in (("t", target), ("g", golden))]
        if spoil is not None:
            spoil(next((tmp_path / "t" / "dump_tensor_data").glob("*output.0.pt")))
        return compare(capsys, *paths, tmp_path / "out")

    return run


def op(output: Any, given: Any = None) -> Json:
    return {"Torch.op.0.forward": api([given if given is not None else tensor()], [output])}


@pytest.mark.parametrize("how", ["missing", "truncated", "malicious", "elsewhere"])
def test_f1_a_tensor_file_that_cannot_be_read_is_not_compared(how: str, tensors: Compare, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    spoil: dict[str, Callable[[Path], None]] = {
        "missing": Path.unlink,
        "truncated": truncated,
        "malicious": lambda path: malicious(path, marker),
        "elsewhere": lambda path: path.write_bytes(b"no tensor file"),
    }
    ran = tensors([1.0], [1.0], spoil[how])
    assert ran.code == 1
    assert ran.result(OUTPUT) == "not compared"
    assert "not compared although recorded" in ran.out
    assert not marker.exists()


def test_f2_the_reason_of_the_metric_stage_reaches_the_file(tensors: Compare) -> None:
    (message,) = tensors([1.0], [1.0], Path.unlink).messages(OUTPUT)
    assert message.startswith("not compared: ") and f"{OUTPUT}.pt" in message


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_f3_fuzzy_matching_works_in_every_mode_and_loses_no_row(mode: str, dumps: Compare) -> None:
    value = tensor(md5="0000000a") if mode == "md5" else tensor()
    target = {f"Torch.a.{n}.forward": api([], [value]) for n in (3, 4, 5)} | {"Torch.x.0.forward": api([], [value])}
    golden = {f"Torch.a.{n}.forward": api([], [value]) for n in (0, 1)}
    ran = dumps(target, golden, "-fm")
    assert ran.code == 1
    assert [row["Result"] for row in ran.rows].count("pass") == 2
    assert [row["Result"] for row in ran.rows].count("unmatched") == 2
    assert {row["NPU Name"] for row in ran.rows} == {f"{name}.output.0" for name in target}


def test_f4_rows_of_one_side_are_unmatched(dumps: Compare) -> None:
    ran = dumps({**op(tensor()), "Torch.a.0.forward": api([], [tensor()])}, {**op(tensor()), "Torch.b.0.forward": api([], [tensor()])})
    assert ran.code == 1
    assert ran.result("Torch.a.0.forward.output.0") == ran.result("Torch.b.0.forward.output.0") == "unmatched"


def test_f4_no_match_at_all_is_refused(dumps: Compare) -> None:
    ran = dumps({"Torch.a.0.forward": api([], [tensor()])}, {"Module.b.B.forward.0": module([], [tensor()])})
    assert ran.code == 2 and "has a partner" in ran.err


def test_f5_infinities_of_opposite_sign_differ(tensors: Compare) -> None:
    assert tensors([math.inf, 1.0], [-math.inf, 1.0]).result(OUTPUT) == "error"


@pytest.mark.parametrize(("target", "golden"), [([math.nan, 1.0], [1.0, math.nan]), ([1.0, 1.0], [math.nan, 1.0])])
def test_f6_nan_in_another_place_differs(target: Any, golden: Any, tensors: Compare) -> None:
    assert tensors(target, golden).result(OUTPUT) == "error"


@pytest.mark.parametrize(("target", "golden"), [(np.float32(1.5), np.float32(1.25)), ([2.0], [1.0]), (np.bool_(True), np.bool_(False))])
def test_f7_tensors_of_one_element_are_judged(target: Any, golden: Any, tensors: Compare) -> None:
    assert tensors(target, golden).result(OUTPUT) == "error"


def test_f8_imaginary_parts_count(tensors: Compare) -> None:
    assert tensors(np.array([1 + 1j]), np.array([1 - 1j])).result(OUTPUT) == "error"


def test_f9_large_integers_are_exact(tensors: Compare) -> None:
    ran = tensors(np.array([2**62]), np.array([2**62 + 1]))
    assert ran.result(OUTPUT) == "error" and ran.row(OUTPUT)["MaxAbsErr"] == "1.0"


@pytest.mark.parametrize(("right", "word"), [(59, "error"), (9, "error")])
def test_f10_the_ratio_rule_acts_below_what_its_text_says(right: int, word: str, tensors: Compare) -> None:
    ran = tensors([1.0] * right + [2.0] * (100 - right), [1.0] * 100)
    assert ran.result(OUTPUT) == word
    assert ran.messages(OUTPUT)[0] == "error: The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6."


def test_f11_the_mark_stands_on_the_output_that_differs(dumps: Compare) -> None:
    ran = dumps(
        {"Torch.op.0.forward": api([tensor()], [tensor(1.0), tensor(9.0)])},
        {"Torch.op.0.forward": api([tensor()], [tensor(1.0), tensor(1.0)])},
    )
    assert ran.result(OUTPUT) == "pass" and ran.result("Torch.op.0.forward.output.1") == "error"


def test_f12_inputs_of_a_module_called_output_are_inputs(dumps: Compare) -> None:
    name = "Module.output.Linear.forward.0"
    ran = dumps({name: module([tensor(9.0)], [tensor(9.0)])}, {name: module([tensor()], [tensor()])})
    assert ran.messages(f"{name}.input.0")[0] == "error: The input differs although no call before it gave a difference."
    assert ran.messages(f"{name}.output.0")[0].startswith("warning: ")


@pytest.mark.parametrize("role", ["parameters.weight", "input.0"])
def test_f13_weights_and_inputs_are_judged_by_value(role: str, dumps: Compare) -> None:
    name = "Module.fc.Linear.forward.0"

    def data(value: float) -> Json:
        other = (tensor(value), tensor()) if role == "input.0" else (tensor(), tensor(value))
        return {name: module([other[0]], [tensor()], weight=other[1])}

    assert dumps(data(1.01), data(1.0)).result(f"{name}.{role}") == "error"


@pytest.mark.parametrize(
    ("target", "golden", "word"),
    [
        (statistics(1.0, -2.0, 0.1, 3.0), statistics(2.0, -1.0, -0.1, 3.0), "error"),  # negated
        (statistics(3.0, -1.0, 0.1, 3.0), statistics(2.0, -1.0, 0.1, 3.0), "error"),  # another maximum
        (statistics(9, 1, 4.0, 20.0, dtype="int64"), statistics(9, 1, 5.0, 21.0, dtype="int64"), "error"),  # other token ids
        (statistics(None, None, None, None), statistics(1.0, 1.0, 1.0, 1.0), "not compared"),
        (statistics(True, False, None, None, dtype="bool"), statistics(True, True, None, None, dtype="bool"), "error"),
    ],
)
def test_f14_all_four_statistics_count(target: Json, golden: Json, word: str, dumps: Compare) -> None:
    assert dumps(op(target), op(golden)).result(OUTPUT) == word


def test_f14_token_ids_that_differ_are_an_error_where_they_come_in(dumps: Compare) -> None:
    def data(mean: float) -> Json:
        return op(tensor(mean), statistics(9, 1, mean, mean * 4, dtype="int64"))

    assert dumps(data(4.0), data(5.0)).result("Torch.op.0.forward.input.0") == "error"


def test_f15_backward_calls_in_another_order_are_no_difference(dumps: Compare) -> None:
    forward = {f"Torch.op.{n}.forward": api([tensor(n + 1.0, requires_grad=True)], [tensor(n + 2.0)]) for n in (0, 1)}
    back = {f"Torch.op.{n}.backward": backward([tensor(n + 3.0)], [tensor(n + 4.0)]) for n in (0, 1)}
    ran = dumps({**forward, **back}, {**forward, **dict(reversed(back.items()))})
    assert ran.code == 0 and {row["Result"] for row in ran.rows} == {"pass"}


def test_f16_the_search_over_ranks_also_takes_dump_json(dumps: Compare) -> None:
    ran = dumps(op(tensor(2.0)), op(tensor()), "-da")
    assert ran.code == 1
    assert list(ran.output.glob("diff_analyze_*.json")) and ran.csvs


@pytest.mark.parametrize(
    ("target", "golden"),
    [
        (statistics(math.nan, math.nan, math.nan, math.nan), tensor()),
        (statistics(1.0, 0.0, 0.5, 1.0), statistics(0.0, 0.0, 0.0, 0.0)),
        (tensor(1.3), tensor(1.0)),
    ],
)
def test_f17_the_search_misses_nothing(target: Json, golden: Json, dumps: Compare) -> None:
    ran = dumps(op(target), op(golden), "-da")
    (found,) = ran.output.glob("diff_analyze_*.json")
    assert "Torch.op.0.forward" in found.read_text()


def test_f17_results_of_earlier_searches_are_left_alone(dumps: Compare, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    old = tmp_path / "out" / "compare_result_rank0_20200101000000.json"
    old.write_text("no JSON")
    assert dumps(op(tensor(2.0)), op(tensor()), "-da").code == 1
    assert old.read_text() == "no JSON"


def test_f18_ranks_are_paired_by_their_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, ranks in (("t", (0, 2)), ("g", (2, 3))):
        for rank in ranks:
            write_dump(tmp_path / side / f"rank{rank}", op(tensor(float(rank))))
    ran = compare(capsys, tmp_path / "t", tmp_path / "g", tmp_path / "out")
    assert ran.code == 1 and [path.name[:20] for path in ran.csvs] == ["compare_result_rank2"]
    assert "rank0 is in the target only" in ran.out and "rank3 is in the golden dump only" in ran.out
    assert ran.result(OUTPUT) == "pass"


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_f18_a_broken_rank_is_named_and_the_others_compared(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in "tg":
        for rank in (0, 1):
            write_dump(tmp_path / side / f"rank{rank}", op(tensor()))
    broken = tmp_path / "t" / "rank0" / "dump.json"
    broken.unlink() if content is None else broken.write_text(content)
    ran = compare(capsys, tmp_path / "t", tmp_path / "g", tmp_path / "out")
    assert ran.code == 2 and "rank0" in ran.err
    assert [path.name[:20] for path in ran.csvs] == ["compare_result_rank1"]


def test_f19_layer_mapping_is_obeyed(dumps: Compare, tmp_path: Path) -> None:
    mapping = tmp_path / "lm.yaml"
    mapping.write_text("TopLayer:\n  mine: theirs\n")
    mine, theirs = ({f"Module.{name}.A.forward.0": module([], [tensor()])} for name in ("mine", "theirs"))
    ran = dumps(mine, theirs, "-lm", str(mapping))
    assert ran.code == 0 and ran.result("Module.mine.A.forward.0.output.0") == "pass"


def test_f19_cell_mapping_without_a_file_pairs_modules_whatever_their_class(dumps: Compare) -> None:
    ran = dumps({"Module.fc.Mine.forward.0": module([], [tensor()])}, {"Module.fc.Linear.forward.0": module([], [tensor()])}, "-cm")
    assert ran.code == 0 and ran.result("Module.fc.Mine.forward.0.output.0") == "pass"


def test_f20_a_file_name_that_leaves_the_directory_is_neither_read_nor_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for side in "tg":
        record = save_array(tmp_path / side, f"{OUTPUT}.pt", [1.0])
        data = op({**record, "data_name": "../dump.pt"}, save_array(tmp_path / side, "Torch.op.0.forward.input.0.pt", [1.0]))
        paths.append(write_dump(tmp_path / side, data, task="tensor"))
    ran = compare(capsys, *paths, tmp_path / "out")
    assert ran.code == 1 and ran.result(OUTPUT) == "not compared"
    assert "leaves its directory" in ran.messages(OUTPUT)[0]


@pytest.mark.parametrize("name", ["with space", "größe", "a=b@c"])
def test_f25_paths_may_hold_any_characters(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [write_dump(tmp_path / name / side, op(tensor())) for side in "tg"]
    ran = compare(capsys, *paths, tmp_path / name / "out")
    assert ran.code == 0 and len(ran.csvs) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"data": 3}', '{"task": "statistics", "data": {"a": 1}}'])
def test_f25_wrong_input_is_one_english_sentence(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = write_dump(tmp_path / "g", op(tensor()))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "dump.json").write_text(content)
    ran = compare(capsys, tmp_path / "t" / "dump.json", golden, tmp_path / "out")
    assert ran.code == 2 and ran.err.isascii()
    assert len(ran.err.strip().splitlines()) == 1 and str(tmp_path / "t" / "dump.json") in ran.err


def test_f25_a_name_without_direction_is_kept(dumps: Compare) -> None:
    data = {**op(tensor()), "my own entry": api([], [tensor()])}
    assert dumps(data, data).result("my own entry.output.0") == "pass"


def test_f25_no_result_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_dump(tmp_path / "t", op(tensor()))
    for _ in range(3):
        assert compare(capsys, path, path, tmp_path / "out").code == 0
    assert len(os.listdir(tmp_path / "out")) == 3


def test_f26_the_workbook_has_colours(dumps: Compare) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    ran = dumps(op(tensor(2.0)), op(tensor()), "--xlsx")
    (path,) = ran.output.glob("*.xlsx")
    book = openpyxl.load_workbook(path)
    fills = {cell.fill.fgColor.rgb for sheet in book for row in sheet.iter_rows() for cell in row if cell.fill.fill_type == "solid"}
    rules = [rule for sheet in book for ranged in sheet.conditional_formatting for rule in ranged.rules]
    assert fills or rules
