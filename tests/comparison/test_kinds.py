from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.kinds import checksum_kind
from msprobe.comparison.outcome import PairReport
from msprobe.comparison.rows import calls_of
from msprobe.errors import UsageError

from .dumps import Json, api, read_csv, tensor, write_dump

NAME = "Torch.a.0.forward"
NO_STATISTICS = {"Max": None, "Min": None, "Mean": None, "Norm": None}


def data(md5: str | None = None, value: float = 2.0, **fields: Any) -> Json:
    mark = {} if md5 is None else {"md5": md5}
    given = {} if md5 is None else {"md5": "0" * len(md5) if not md5.startswith("0x") else "0x" + "0" * 16}
    return {NAME: api([tensor(**given, **fields)], [tensor(value, **mark, **fields)])}


def report(tmp_path: Path, target: tuple[str, Json], golden: tuple[str, Json]) -> PairReport:
    paths = [write_dump(tmp_path / side, held, task=task, stack={}) for side, (task, held) in zip("tg", (target, golden), strict=True)]
    return compare(paths[0], paths[1], tmp_path / "o").reports[0]


def test_two_tasks_with_one_kind_of_checksum_are_compared_by_it(tmp_path: Path) -> None:
    """The statistics are alike, the checksums are not: only these tell."""
    found = report(tmp_path, ("tensor", data("aaaaaaaa", data_name="x.pt")), ("statistics", data("bbbbbbbb")))
    assert (found.mode, found.counts["pass"], found.counts["error"]) == ("md5", 1, 1)
    assert list(read_csv(found.csv)[1])[8:10] == ["NPU MD5", "BENCH MD5"]
    assert found.notes == (
        "the target was recorded with task tensor, the golden run with task statistics: compared by checksum (md5), which both hold",
    )


@pytest.mark.parametrize(
    ("target", "golden", "told"),
    [
        (("statistics", data()), ("tensor", data()), "the target was recorded with task statistics, the golden run with task tensor"),
        (("statistics", data("aaaaaaaa")), ("statistics", data()), "the target holds md5, the golden dump no checksums"),
        (
            ("statistics", data()),
            ("tensor", data("aaaaaaaa")),
            "the target was recorded with task statistics, the golden run with task tensor;"
            " the target holds no checksums, the golden dump md5",
        ),
    ],
)
def test_what_has_statistics_on_both_sides_is_compared_by_them(
    target: tuple[str, Json], golden: tuple[str, Json], told: str, tmp_path: Path
) -> None:
    found = report(tmp_path, target, golden)
    assert (found.mode, found.counts["pass"], found.lost) == ("statistics", 2, 0)
    assert found.notes == (f"{told}: compared by Max, Min, Mean and Norm, which both hold",)
    other = {NAME: api([tensor()], [tensor(3.0)])}
    assert report(tmp_path / "2", target, (golden[0], other)).counts["error"] == 1


def test_two_dumps_alike_need_no_word(tmp_path: Path) -> None:
    for index, (task, held) in enumerate((("statistics", data()), ("statistics", data("aaaaaaaa")), ("tensor", data("aaaaaaaa")))):
        assert report(tmp_path / str(index), (task, held), (task, held)).notes == ()


@pytest.mark.parametrize("swapped", [False, True])
def test_checksums_of_two_kinds_are_never_compared(swapped: bool, tmp_path: Path) -> None:
    sides = ("statistics", data("0x0123456789abcdef", **NO_STATISTICS)), ("statistics", data("01234567"))
    with pytest.raises(UsageError, match=r"holds (xor|md5), .* holds (xor|md5): two kinds of checksums; record both alike"):
        report(tmp_path, *(reversed(sides) if swapped else sides))


@pytest.mark.parametrize(
    ("marks", "kind"),
    [
        ((), ""),
        (("01234567",), "md5"),
        (("0x0123456789abcdef",), "xor"),
        ((2.5, "0x3", "0x0123456789abcdef"), "xor"),  # the reference gives a number for a 0-d tensor
        ((2.5, "0x3"), "unknown"),
    ],
)
def test_the_kind_is_told_by_its_form(marks: tuple[Any, ...], kind: str) -> None:
    held = {f"Torch.a.{i}.forward": api([tensor(md5=mark)], []) for i, mark in enumerate(marks)} | {
        "Torch.b.0.forward": api([tensor()], [])
    }
    assert checksum_kind(calls_of(held, "d")) == kind


def test_without_a_checksum_the_statistics_can_show_a_difference(tmp_path: Path) -> None:
    """A NumPy array has none; that its four numbers agree is no `pass`."""

    def held(value: float) -> Json:
        return {NAME: api([tensor(md5="0" * 8), tensor(value)], [tensor(md5="1" * 8)])}

    found = report(tmp_path, ("statistics", held(5.0)), ("statistics", held(2.0)))
    assert (found.mode, found.counts["pass"], found.counts["error"]) == ("md5", 2, 1)
    row = read_csv(found.csv)[1]
    assert (row["Result"], row["NPU MD5"]) == ("error", "N/A")
    assert "There is no checksum of it, and its Max, Min, Mean or Norm differs" in row["Err_message"]
    found = report(tmp_path, ("statistics", held(5.0)), ("statistics", held(5.0)))
    assert (found.counts["pass"], found.counts["not compared"]) == (2, 1)
    one_sided = {NAME: api([tensor(md5="0" * 8), tensor(5.0, md5="3" * 8)], [tensor(md5="1" * 8)])}
    found = report(tmp_path, ("statistics", held(2.0)), ("statistics", one_sided))
    assert (found.counts["pass"], found.counts["error"]) == (2, 1)
