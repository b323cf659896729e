"""Reading in parts gives the calls that reading the whole file gives, and equal values of two dumps are kept once."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from comparison.dumps import api, statistics, tensor, write_dump
from comparison.net import Net
from msprobe.comparison.reading import read_calls
from msprobe.comparison.rows import calls_of
from msprobe.errors import DumpFormatError
from msprobe.format.reader import read_dump


def test_the_same_calls(tmp_path: Path) -> None:
    path = Net().write(tmp_path)
    head, calls = read_calls(path)
    assert head.task == "statistics"
    assert calls == calls_of(read_dump(path).data, str(path))


def test_a_file_of_another_layout(tmp_path: Path) -> None:
    path = Net().write(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_calls(path)[1] == calls_of(read_dump(path).data, str(path))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = Net().write(tmp_path)
    path.write_text(path.read_text()[:-30])
    with pytest.raises(DumpFormatError, match="is cut off"):
        read_calls(path)


def of(directory: Path, *records: Any) -> Path:
    return write_dump(directory, {"Torch.a.0.forward": api(list(records), [])})


def test_equal_tensors_share_their_row(tmp_path: Path) -> None:
    first = read_calls(of(tmp_path / "a", tensor(2.0), tensor(3.0)))[1]
    second = read_calls(of(tmp_path / "b", tensor(2.0), tensor(3.5)), first)[1]
    assert second[0].rows[0] is first[0].rows[0]
    assert second[0].rows[1] is not first[0].rows[1]


OTHERS = [
    (statistics(1.0, 1.0, 1.0, 1.0), statistics(1, 1, 1, 1)),
    (statistics(0.0, 1.0, 1.0, 1.0), statistics(-0.0, 1.0, 1.0, 1.0)),
    (statistics(0.0, 1.0, 1.0, 1.0), statistics(0.0, 1.0, 1.0, 1.0)),
    (statistics(math.nan, 1.0, 1.0, 1.0), statistics(math.nan, 1.0, 1.0, 1.0)),
    (tensor(2.0), tensor(2.0, requires_grad=True)),
    (tensor(2.0), tensor(2.0, dtype="float64")),
    (tensor(2.0), tensor(2.0, shape=(3, 2))),
    (tensor(2.0, md5="1"), tensor(2.0, md5=1)),
    (tensor(2.0), tensor(2.0, data_name="Torch.a.0.forward.input.0.pt")),
    (tensor(2.0), {"type": "float", "value": 1.0}),
    (tensor(3.0, shape=(1,)), tensor(3.0, shape=[True])),
]


@pytest.mark.parametrize(("ours", "theirs"), OTHERS)
def test_nothing_else_is_shared(tmp_path: Path, ours: Any, theirs: Any) -> None:
    first = read_calls(of(tmp_path / "a", ours))[1]
    path = of(tmp_path / "b", theirs)
    shared = read_calls(path, first)[1]
    assert shared[0].rows[0] is not first[0].rows[0]
    assert repr(shared) == repr(read_calls(path)[1])


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.format import parts

    monkeypatch.setattr(parts, "_AT_ONCE", 2000)
    monkeypatch.setattr(parts, "_HEAD_WITHIN", 300)


def test_entries_of_the_same_text_are_the_same_call(tmp_path: Path, small_parts: None) -> None:
    data = {f"Torch.op.{number}.forward": api([tensor(number, Max=math.nan), 0.0, None], []) for number in range(40)}
    first = read_calls(write_dump(tmp_path / "a", data))[1]
    changed = {name: entry for name, entry in data.items() if name != "Torch.op.3.forward"}
    changed["Torch.op.5.forward"] = api([tensor(2.5)], [])
    path = write_dump(tmp_path / "b", changed)
    second = read_calls(path, first)[1]
    assert repr(second) == repr(read_calls(path)[1])
    by_name = {call.name: call for call in first}
    shared = [call.name for call in second if call is by_name[call.name]]
    assert len(shared) > 20 and "Torch.op.5.forward" not in shared and "Torch.op.4.forward" in shared


def test_an_entry_that_comes_twice(tmp_path: Path, small_parts: None) -> None:
    data = {f"Torch.op.{number}.forward": api([tensor(number)], []) for number in range(40)}
    path = write_dump(tmp_path, data)
    first = read_calls(path)[1]
    text = path.read_text().replace('"Torch.op.30.forward"', '"Torch.op.2.forward"')
    path.write_text(text)
    calls = read_calls(path, first)[1]
    assert [call.name for call in calls] == list(read_dump(path).data)
    assert calls == calls_of(read_dump(path).data, str(path))
