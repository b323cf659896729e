"""The text of the CSV is, to the byte, what the csv module makes of the cells."""

from __future__ import annotations

import csv
import io
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparison.dumps import api, save_array, statistics, tensor, write_dump
from msprobe.comparison import report_csv
from msprobe.comparison.csv_text import cell, content, spell
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.one_pair import examine

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FLOATS, st.integers(-(2**63), 2**63), st.floats(1e-6, 1e-3)), min_size=1))
def test_numbers_are_spelled_as_python_does(groups: list[tuple[Any, ...]]) -> None:
    assert spell(groups) == [",".join(map(repr, group)) for group in groups]


@pytest.mark.parametrize("exponent", range(-1074, 1024, 7))
def test_every_size_of_number(exponent: int) -> None:
    values = [sign * digits * 2.0**exponent for sign in (1, -1) for digits in (1, 1.5, 1.1, 1.9999999999999998)]
    assert spell([values]) == [",".join(map(repr, values))]


def test_borders_of_the_spellings() -> None:
    values = [0.0, -0.0, 1e-4, 9.999999999999999e-05, 1e-05, -1.5e-05, 9.99e-06, 10.00001, 100.0000123]
    values += [1e15, 1e16, 123456789012345680.0, 5e-324, 1.7e308]
    assert spell([values]) == [",".join(map(repr, values))]


def test_float32_numbers() -> None:
    values = [struct.unpack("f", struct.pack("I", bits))[0] for bits in range(0x33000000, 0x48000000, 1234567)]
    assert spell([values]) == [",".join(map(repr, values))]


@pytest.mark.parametrize("odd", [math.nan, math.inf, None, True, "1", "],[", [1.0], 2**70])
def test_what_is_no_plain_number_spoils_only_its_own_group(odd: Any) -> None:
    first, second, third = spell([(1.5, 2), (odd, 1.0), (1e-7, 3.0)])
    assert (first, third) == ("1.5,2", "1e-07,3.0")
    assert second == (f"{2**70},1.0" if odd == 2**70 else None)


@given(st.text())
def test_a_cell_is_quoted_as_the_csv_module_does(text: str) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerow([content(text), 1])
    assert cell(text) == stream.getvalue()[: -len(",1\n")]


@given(st.sampled_from(["=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"]), st.text())
def test_no_cell_is_a_formula(first: str, rest: str) -> None:
    held = content(first + rest)
    if first == "-" and held[0] == "-":
        assert float(held.removesuffix("%")) <= 0
    else:
        assert held[0] == "'"
    assert content(held) == held


@pytest.mark.parametrize("number", ["-1.5", "-1e-07", "-1.", "-12", "-inf", "-0.5%", -1.5, -3, " -inf", "0", "1.0%"])
def test_a_number_that_is_spelled_out_stays_one(number: Any) -> None:
    assert content(number) == number


@pytest.mark.parametrize("text", ["-1+2", "-cmd", "-1.5)", "--1", "-", "-1e", "-infinity", "-1\n"])
def test_what_only_begins_like_a_negative_number_is_none(text: str) -> None:
    assert content(text).startswith("'-")


def expected(compared: Any) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows([[content(value) for value in row] for row in report_csv.rows_of(compared)])
    return stream.getvalue()


def odd_entries(shift: float, directory: Path | None = None) -> dict[str, Any]:
    """Entries with everything a cell can hold."""
    values = [
        statistics(1.0 + shift, -0.0, 1e-7, 3e-5),
        statistics(math.nan, -math.inf, None, "text"),
        statistics(True, False, None, None, dtype="torch.bool"),
        statistics(2**70, -(2**63), 1.5, 1.5, dtype="torch.int64"),
        tensor(2.0, requires_grad=None),
        {"type": "str", "value": '=cmd "quoted", with\nlines\x1b[0m'},
        {"type": "str", "value": "\ud800"},
        {"type": "slice", "value": [None, 1, 2]},
        {"type": "float", "value": shift},
        None,
    ]
    data = {
        "Functional.op.0.forward": api(values, [tensor(1.0 + shift), tensor(shape=(), dtype="int64", Max=3, Min=3)]),
        "=cmd,\t.op.1.forward": api([tensor()], [tensor()]),
        f"Torch.only{shift}.0.forward": api([tensor(), 3], [tensor()]),
    }
    if directory is not None:
        given, out = save_array(directory, "x.pt", [1.0, 2.0]), save_array(directory, "y.pt", [1.0 + shift, math.inf])
        data["Torch.op.7.forward"] = api([given], [out])
    return data


@pytest.fixture(params=["in C", "in Python"])
def in_c(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the lines are made in C."""
    if request.param == "in Python":
        monkeypatch.setattr(report_csv, "_lines", None)
    elif report_csv._lines is None:
        pytest.skip("installed without a compiler")
    return bool(request.param == "in C")


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("with_stack", [True, False])
@pytest.mark.parametrize("shift", [0.0, 1e-9, 1.0])
def test_the_text_of_a_pair(tmp_path: Path, task: str, with_stack: bool, shift: float, in_c: bool) -> None:
    stack = {"Functional.op.0.forward": ['File "a, b".py, line 3, in f, \n x = "é"'], "Torch.op.7.forward": []} if with_stack else None
    paths = []
    for side, by in (("a", shift), ("b", 0.0)):
        directory = tmp_path / side
        entries = odd_entries(by, directory if task == "tensor" else None)
        paths.append(write_dump(directory, entries, task=task, stack=stack))
    compared = examine(DumpPair(paths[0], paths[1], None, ""))
    assert "".join(report_csv.text_of(compared)) == expected(compared)


def test_checksums(tmp_path: Path) -> None:
    paths = [
        write_dump(tmp_path / side, {"Torch.a.0.forward": api([tensor(md5="0" * 8), 1], [tensor(md5=md5)])})
        for side, md5 in (("a", "12345678"), ("b", "87654321"))
    ]
    compared = examine(DumpPair(paths[0], paths[1], None, ""))
    assert compared.mode == "md5"
    assert "".join(report_csv.text_of(compared)) == expected(compared)


def test_many_rows_come_in_pieces(tmp_path: Path, in_c: bool) -> None:
    data = {f"Torch.op.{number}.forward": api([tensor(number + 0.1)] * 3, [tensor(number * 1e-6)]) for number in range(1500)}
    paths = [write_dump(tmp_path / side, data) for side in "ab"]
    compared = examine(DumpPair(paths[0], paths[1], None, ""))
    pieces = list(report_csv.text_of(compared))
    assert len(pieces) == (3 if in_c else 4) and "".join(pieces) == expected(compared)


def test_stacks_of_many_calls(tmp_path: Path, in_c: bool) -> None:
    """Calls that share a line of code, that have their own, an empty one, none, or that of their forward call."""
    frames = [f'File "m.py", line {number}, in f, \n y = x' for number in range(3)]
    stack = {f"Torch.op.{number}.forward": [frames[number // 2 % 3]] for number in range(12)}
    stack["Torch.op.5.forward"] = []
    data = {f"Torch.op.{number}.forward": api([tensor(number + 0.1), tensor(1.0)], [tensor(2.0)]) for number in range(14)}
    data |= {f"Torch.op.{number}.backward": {"input": [tensor(1.0)], "output": [tensor(2.0)]} for number in range(14)}
    paths = [write_dump(tmp_path / side, data, stack=stack) for side in "ab"]
    compared = examine(DumpPair(paths[0], paths[1], None, ""))
    assert "".join(report_csv.text_of(compared)) == expected(compared)
