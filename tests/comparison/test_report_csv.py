from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison import report_csv
from msprobe.comparison.compare import compare
from msprobe.comparison.options import Options

from .dumps import api, backward, frame, read_csv, tensor, write_dump

BASIC = "NPU Name,Bench Name,NPU Dtype,Bench Dtype,NPU Tensor Shape,Bench Tensor Shape,NPU Requires_grad,Bench Requires_grad"


def header(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0]


def test_columns_without_stack(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "a", {"Torch.a.0.forward": api([], [tensor()])})
    report = compare(path, path, tmp_path / "o").reports[0]
    assert header(report.csv).startswith(BASIC + ",Max diff,Min diff,Mean diff,L2norm diff,MaxRelativeErr,MinRelativeErr,")
    assert header(report.csv).endswith(",Requires_grad Consistent,Result,Err_message")
    assert any("stack.json does not exist" in note for note in report.notes)


def test_a_damaged_stack_is_mentioned_and_survived(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "a", {"Torch.a.0.forward": api([], [tensor()])})
    (path.parent / "stack.json").write_text("{")
    assert any("stack.json" in note for note in compare(path, path, tmp_path / "o").reports[0].notes)


def test_stack_stands_in_the_first_row_of_a_call_and_backward_has_its_forward_s(tmp_path: Path) -> None:
    data = {"Torch.a.0.forward": api([tensor()], [tensor()]), "Torch.a.0.backward": backward([tensor()], [tensor()])}
    frames = [frame("m.py", 3, "f", "y = a(x)")]
    path = write_dump(tmp_path / "a", data, stack={"Torch.a.0.forward": frames})
    stacks = [row["NPU_Stack_Info"] for row in read_csv(compare(path, path, tmp_path / "o").reports[0].csv)]
    assert stacks == [repr(frames), "N/A", repr(frames), "N/A"]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (float("nan"), "Nan"),
        (float("inf"), " inf"),
        (float("-inf"), " -inf"),
        (None, "None"),
        (True, "True"),
        (1e-7, "1e-07"),
        (2**70, str(2**70)),
    ],
)
def test_spelling_of_numbers(value: Any, cell: str, tmp_path: Path) -> None:
    path = write_dump(tmp_path / "a", {"Torch.a.0.forward": api([], [tensor(1.0, Max=value)])})
    assert read_csv(compare(path, path, tmp_path / "o").reports[0].csv)[0]["NPU max"] == cell


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-1+2", "@x", "＝cmd()"])
def test_recorded_text_is_no_formula(text: str, tmp_path: Path) -> None:
    data = {text + ".a.0.forward": api([{"type": "str", "value": text}], [tensor()])}
    path = write_dump(tmp_path / "a", data)
    row = read_csv(compare(path, path, tmp_path / "o").reports[0].csv)[0]
    assert row["NPU max"] == "'" + text
    assert row["NPU Name"].startswith("'" + text)


FORMULAS = {"dtype": "=1", "shape": "+2", "requires_grad": "@3"}


@pytest.mark.parametrize("md5", [None, "=4"])
@pytest.mark.parametrize("reference", [False, True])
def test_no_column_of_a_pair_holds_a_formula(tmp_path: Path, md5: str | None, reference: bool) -> None:
    record = tensor(-1.0) | FORMULAS | ({} if md5 is None else {"md5": md5})
    data = {"Torch.a.0.forward": api([], [record]), "Torch.b.0.forward": api([], [tensor(-1.0)])}
    path = write_dump(tmp_path / "a", data, stack={"Torch.a.0.forward": ["=f"]})
    row, plain = read_csv(compare(path, path, tmp_path / "o", Options(reference=str(path) if reference else None)).reports[0].csv)
    named = ("NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "NPU Requires_grad", "Bench Requires_grad")
    assert [row[name] for name in named] == ["'=1", "'=1", "'+2", "'+2", "'@3", "'@3"]
    if md5 is not None:
        assert (row["NPU MD5"], row["BENCH MD5"]) == ("'=4", "'=4")
        return
    assert plain["NPU min"] == plain["Bench min"] == "-2.0"
    assert [cell for cell in row.values() if cell[0] in "=+@"] == []


def test_the_summary_holds_no_formula(tmp_path: Path) -> None:
    for side, value in (("a", 1.0), ("b", 2.0)):
        data = {"=cmd.f.0.forward": api([tensor()], [tensor(value)])}
        for rank in (0, 1):
            stack = {"=cmd.f.0.forward": [frame("=x/y.py", 3, "f", "=z")]}
            write_dump(tmp_path / side / "step0" / f"rank{rank}", data, construct={}, stack=stack)
    summary = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o").summary
    assert summary is not None
    for row in read_csv(summary):
        assert row["First difference"].startswith("'=cmd.f.0.forward") and row["Code line"].startswith("'=x/y.py:3")


def test_numbers_of_other_tables_stay_numbers(tmp_path: Path) -> None:
    path = report_csv.write(tmp_path, "merged", "1", ["=name"], [["=a", "-1.5", -1.5, "-inf", "-0.5%", ""]])
    assert path.read_text() == "'=name\n'=a,-1.5,-1.5,-inf,-0.5%,\n"


def test_half_a_surrogate_pair_is_written(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "a", {"Torch.a.0.forward": api([{"type": "str", "value": "\ud800"}], [tensor()])})
    assert read_csv(compare(path, path, tmp_path / "o").reports[0].csv)[0]["NPU max"] == "\\ud800"


def test_a_row_is_one_line(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "a", {"Torch.a.0.forward": api([tensor()], [tensor()])}, stack={"Torch.a.0.forward": ["File x, \n y"]})
    raw = compare(path, path, tmp_path / "o").reports[0].csv.read_bytes()
    assert raw.count(b"\n") == 3 and b"\r" not in raw and not raw.startswith(b"\xef\xbb\xbf")


def test_a_file_that_cannot_be_finished_is_removed(tmp_path: Path) -> None:
    def lines() -> Any:
        yield ["a"]
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        report_csv.write(tmp_path, "compare_result", "1", ["x"], lines())
    assert list(tmp_path.iterdir()) == []
