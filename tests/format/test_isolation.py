from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.errors import DumpFormatError
from msprobe.format.isolation import Orders, append_line, label_of, read_lines


def test_orders_come_back_as_they_were(tmp_path: Path) -> None:
    orders = Orders("/golden", "/work", "/events", 3, ("rank0",), {"rank0": ("Module.a.A.forward.0",)}, ("Module.b.B.forward.0",), True)
    orders.write(tmp_path / "orders.json")
    assert Orders.read(tmp_path / "orders.json") == orders


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"calls": {}, "record": [], "labels": [], "more": 1}'])
def test_what_are_no_orders(tmp_path: Path, text: str) -> None:
    path = tmp_path / "orders.json"
    path.write_text(text)
    with pytest.raises(DumpFormatError, match="not the orders of msprobe isolate"):
        Orders.read(path)


def test_lines_survive_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert list(read_lines(path)) == []
    append_line(str(path), {"a": float("nan")})
    append_line(str(path), {"b": "ü"})
    with open(path, "ab") as file:
        file.write(b'[1]\n{"c": ')
    first, second = read_lines(path)
    assert first["a"] != first["a"] and second == {"b": "ü"}


def test_which_golden_directory_belongs_to_a_rank() -> None:
    assert label_of(1, ["rank0", "rank1"]) == "rank1"
    assert label_of(2, ["rank0", "rank1"]) is None
    assert label_of(None, ["proc7"]) == "proc7"
    assert label_of(None, ["rank0"]) is None and label_of(0, ["proc7"]) is None
    assert label_of(None, ["proc7", "proc8"]) is None
