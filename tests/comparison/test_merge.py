"""merge_result: results of several ranks side by side."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from msprobe.cli.main import main
from msprobe.comparison.compare import compare
from msprobe.comparison.merge import Merged, merge_result
from msprobe.comparison.merge_config import MergeConfig, read_config
from msprobe.errors import UsageError

from .dumps import api, tensor, write_dump
from .ranks import compute, write_ranks
from .test_ranks import all_reduce

SAMPLE = Path(__file__).parents[1] / "golden" / "analysis" / "multirank"
_NAMESPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def sheets(path: Path) -> dict[str, list[list[str]]]:
    """Sheet -> its cells as texts."""
    with zipfile.ZipFile(path) as archive:
        names = [one.get("name") or "" for one in ElementTree.fromstring(archive.read("xl/workbook.xml")).iter(f"{_NAMESPACE}sheet")]
        shared: list[str] = []
        if "xl/sharedStrings.xml" in archive.namelist():
            items = ElementTree.fromstring(archive.read("xl/sharedStrings.xml")).iter(f"{_NAMESPACE}si")
            shared = ["".join(item.itertext()) for item in items]
        found = {}
        for number, name in enumerate(names, 1):
            root = ElementTree.fromstring(archive.read(f"xl/worksheets/sheet{number}.xml"))
            found[name] = [[_cell(cell, shared) for cell in line] for line in root.iter(f"{_NAMESPACE}row")]
    return found


def _cell(cell: ElementTree.Element, shared: list[str]) -> str:
    text = "".join(cell.itertext())
    return shared[int(text)] if cell.get("t") == "s" else text


def results(tmp_path: Path, golden_gain: float = 2.0) -> Path:
    target, golden = (write_ranks(tmp_path / side, all_reduce({0: 1.0, 1: gain})) for side, gain in (("t", 9.0), ("g", golden_gain)))
    compare(target, golden, tmp_path / "results")
    return tmp_path / "results"


def merged_of(source: Path, output: Path, config: MergeConfig = MergeConfig()) -> tuple[Merged, list[Path]]:  # noqa: B008
    (found,) = merge_result(source, output, config)
    return found


def expected_of_the_sample() -> dict[str, dict[str, list[str]]]:
    (path,) = (SAMPLE / "merged").glob("*.xlsx")
    return {name: {line[0]: line[1:] for line in lines} for name, lines in sheets(path).items()}


def test_the_sample_from_our_own_results(tmp_path: Path) -> None:
    """The existing tool's workbook and ours hold the same cells; its rows are sorted by name, ours stand in the order of execution."""
    compare(SAMPLE / "target", SAMPLE / "golden", tmp_path / "results")
    _, paths = merged_of(tmp_path / "results", tmp_path / "o", read_config(SAMPLE / "merge.yaml"))
    ours = {name: {line[0]: line[1:] for line in lines} for name, lines in sheets(paths[0]).items()}
    expected = expected_of_the_sample()
    assert list(ours) == list(expected)
    for sheet, rows in expected.items():
        assert set(ours[sheet]) == set(rows)
        for name, cells in rows.items():
            assert [cell.removesuffix(".0") for cell in ours[sheet][name]] == [cell.removesuffix(".0") for cell in cells], (sheet, name)


def test_the_sample_from_its_own_results(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    merged, _ = merged_of(SAMPLE / "result", tmp_path / "o", read_config(SAMPLE / "merge.yaml"))
    expected = expected_of_the_sample()["Max diff"]
    assert {name: [cells[0], cells[1]] for name, cells in merged.tables["Max diff"].items()} == {
        name: [cell if cell in ("0", "") or "." in cell else f"{cell}.0" for cell in cells]
        for name, cells in expected.items()
        if name != "NPU Name"
    }


def test_the_xlsx_of_this_tool_can_be_read(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    source = results(tmp_path)
    plain, _ = merged_of(source, tmp_path / "o")
    for path in source.glob("*.csv"):
        path.unlink()
    target, golden = str(tmp_path / "t"), str(tmp_path / "g")
    assert main(["compare", "-tp", target, "-gp", golden, "-o", str(tmp_path / "x"), "--xlsx"]) == 1
    for path in (tmp_path / "x").glob("*.csv"):
        path.unlink()
    merged, _ = merged_of(tmp_path / "x", tmp_path / "o")
    assert merged.names == plain.names
    assert list(merged.tables) == list(plain.tables)


def test_xlsx_without_openpyxl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(UsageError, match=r"reading it needs openpyxl \(pip install openpyxl\); or compare without --xlsx"):
        merge_result(SAMPLE / "result", tmp_path, MergeConfig())


def test_files(tmp_path: Path) -> None:
    merged, paths = merged_of(results(tmp_path), tmp_path / "o", MergeConfig(("Torch.mul", "Torch.add"), ("Max diff", "Result")))
    names = [re.sub(r"\d{14}", "T", path.name) for path in paths]
    assert names == [f"multi_ranks_compare_merge_T{end}" for end in (".xlsx", "_Max_diff.csv", "_Result.csv")]
    with open(paths[1], encoding="utf-8", newline="") as stream:
        lines = list(csv.reader(stream))
    assert lines == [
        ["NPU Name", "rank0", "rank1"],
        ["Torch.mul.0.forward.input.0", "0", "0"],
        ["Torch.mul.0.forward.output.0", "0", "7.0"],
        ["Torch.add.0.forward.input.0", "7.0", "7.0"],
        ["Torch.add.0.forward.output.0", "7.0", "7.0"],
    ]
    assert sheets(paths[0])["Max diff"][2] == ["Torch.mul.0.forward.output.0", "0", "7"]
    assert merged.ranks == (0, 1)


def test_without_a_choice_all_calls_and_all_measured_columns(tmp_path: Path) -> None:
    merged, paths = merged_of(results(tmp_path), tmp_path / "o")
    assert list(merged.tables) == [
        *("Max diff", "Min diff", "Mean diff", "L2norm diff"),
        *("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"),
    ]
    assert len(merged.names) == 6 and len(paths) == 9


def test_checksums(tmp_path: Path) -> None:
    for side in "tg":
        for rank in (0, 1):
            md5 = "0000000a" if side == "t" and rank else "0000000b"
            write_dump(tmp_path / side / f"rank{rank}", {"Torch.a.0.forward": api([], [tensor(md5=md5)])})
    compare(tmp_path / "t", tmp_path / "g", tmp_path / "results")
    merged, _ = merged_of(tmp_path / "results", tmp_path / "o")
    assert list(merged.tables) == ["NPU MD5", "BENCH MD5", "Result"]
    assert merged.tables["Result"]["Torch.a.0.forward.output.0"] == {0: "pass", 1: "error"}


def test_a_cell_without_a_number_shows_the_values(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_dump(tmp_path / "t" / f"rank{rank}", {"Torch.a.0.forward": api([tensor()], [tensor(Max=float("nan"))])})
        write_dump(tmp_path / "g" / f"rank{rank}", {"Torch.a.0.forward": api([tensor()], [tensor(2.0)])})
    compare(tmp_path / "t", tmp_path / "g", tmp_path / "results")
    merged, _ = merged_of(tmp_path / "results", tmp_path / "o")
    assert merged.tables["Max diff"]["Torch.a.0.forward.output.0"][0] == "NPU:Nan  Bench:3.0"


def test_rows_that_a_rank_lacks_are_blank_and_stand_where_they_ran(tmp_path: Path) -> None:
    more = {**compute("Torch.a.0.forward", 1.0, 2.0), **compute("Torch.x.0.forward", 1.0, 2.0), **compute("Torch.b.0.forward", 1.0, 2.0)}
    less = {name: entry for name, entry in more.items() if "x" not in name}
    for side in "tg":
        write_ranks(tmp_path / side, {0: less, 1: more})
    compare(tmp_path / "t", tmp_path / "g", tmp_path / "results")
    merged, paths = merged_of(tmp_path / "results", tmp_path / "o", MergeConfig(compare_index=("Max diff",)))
    assert [name for name in merged.names if name.endswith("output.0")] == [f"Torch.{name}.0.forward.output.0" for name in "axb"]
    with open(paths[1], encoding="utf-8", newline="") as stream:
        assert ["Torch.x.0.forward.output.0", "", "0"] in list(csv.reader(stream))


def test_rows_of_the_golden_dump_are_there(tmp_path: Path) -> None:
    write_ranks(tmp_path / "t", {rank: compute("Torch.a.0.forward", 1.0, 2.0) for rank in (0, 1)})
    both = {**compute("Torch.a.0.forward", 1.0, 2.0), **compute("Torch.gone.0.forward", 1.0, 2.0)}
    write_ranks(tmp_path / "g", {0: both, 1: both})
    compare(tmp_path / "t", tmp_path / "g", tmp_path / "results")
    merged, _ = merged_of(tmp_path / "results", tmp_path / "o")
    assert merged.tables["Max diff"]["Torch.gone.0.forward.output.0"][0] == "NPU:N/A  Bench:3.0"


def test_the_newest_result_of_a_rank_counts(tmp_path: Path) -> None:
    source = results(tmp_path)
    for path in list(source.glob("*.csv")):
        path.with_name(re.sub(r"\d{14}", "20200101000000", path.name)).write_text("old")
    merged, _ = merged_of(source, tmp_path / "o")
    assert any("1 older results of rank 0 lie beside it" in note for note in merged.notes)


def test_a_root_is_merged_step_by_step(tmp_path: Path) -> None:
    for side, gain in (("t", 9.0), ("g", 2.0)):
        for step in (0, 3):
            write_ranks(tmp_path / side / f"step{step}", all_reduce({0: 1.0, 1: gain}))
    compare(tmp_path / "t", tmp_path / "g", tmp_path / "results")
    found = merge_result(tmp_path / "results", tmp_path / "o", MergeConfig(compare_index=("Max diff",)))
    assert [paths[0].parent.name for _, paths in found] == ["step0", "step3"]


@pytest.mark.parametrize(
    ("api_name", "takes"),
    [("Torch.mul", True), ("mul", True), ("Torch.mu", False), ("Torch", True), ("ul", False), ("Torch.mul.0", True), ("Tensor.mul", False)],
)
def test_which_rows_a_name_takes(api_name: str, takes: bool) -> None:
    assert (MergeConfig((api_name,)).takes("Torch.mul.0.forward.input.0") is not None) is takes


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MergeConfig(compare_index=("Max dif",)), r"has no column 'Max dif'; did you mean 'Max diff'\?"),
        (MergeConfig(compare_index=("Zzzz",)), "has no column 'Zzzz'; there are: Max diff"),
        (MergeConfig(api=("Torch.mull",)), "no row in .* belongs to Torch.mull"),
    ],
)
def test_wrong_choices(config: MergeConfig, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        merge_result(results(tmp_path), tmp_path / "o", config)
    assert not (tmp_path / "o").exists()


def test_a_name_that_takes_nothing_is_a_note(tmp_path: Path) -> None:
    merged, _ = merged_of(results(tmp_path), tmp_path / "o", MergeConfig(("Torch.mul", "Torch.nothing")))
    assert merged.notes == ("no row belongs to 'Torch.nothing'",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apis: [a]", r"unknown key 'apis'; did you mean api\?"),
        ("api: Torch.mul", "api in .* must be a list of names"),
        ("compare_index: [1]", "compare_index in .* must be a list of names"),
        ("- a", "must hold the keys api and compare_index"),
        ("api: [", "is not valid YAML"),
        ("api: [2020-13-45]", "is not valid YAML: line 1: `2020-13-45` is taken for"),
        ("api: [a]\napi: [b]", "`api` stands twice"),
    ],
)
def test_wrong_configurations(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_config(tmp_path / "c.yaml")


def test_an_empty_configuration_means_all(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("api:\ncompare_index: []\n")
    assert read_config(tmp_path / "c.yaml") == MergeConfig()
    (tmp_path / "c.yaml").write_text("")
    assert read_config(tmp_path / "c.yaml") == MergeConfig()


def test_wrong_directories(tmp_path: Path) -> None:
    source = results(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        merge_result(tmp_path / "none", tmp_path / "o", MergeConfig())
    with pytest.raises(UsageError, match="is a file"):
        merge_result(next(source.glob("*.csv")), tmp_path / "o", MergeConfig())
    with pytest.raises(UsageError, match=r"two ranks at least, .*; there is none"):
        merge_result(tmp_path / "t", tmp_path / "o", MergeConfig())
    next(source.glob("*rank0*.csv")).unlink()
    with pytest.raises(UsageError, match=r"two ranks at least, .*; there is only compare_result_rank1"):
        merge_result(source, tmp_path / "o", MergeConfig())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "is no result of a comparison"),
        ("", "is no result of a comparison"),
        ("NPU Name,b,c\nx\n", "line 2: 1 cells under 3 columns"),
    ],
)
def test_files_that_are_no_results(text: str, words: str, tmp_path: Path) -> None:
    source = results(tmp_path)
    next(source.glob("*rank1*.csv")).write_text(text)
    with pytest.raises(UsageError, match=words):
        merge_result(source, tmp_path / "o", MergeConfig())


def test_ranks_that_were_compared_by_different_means(tmp_path: Path) -> None:
    for side in "tg":
        write_dump(tmp_path / side / "rank0", {"Torch.a.0.forward": api([], [tensor(md5="0000000a")])})
        write_dump(tmp_path / side / "rank1", {"Torch.a.0.forward": api([], [tensor()])})
    compare(tmp_path / "t", tmp_path / "g", tmp_path / "results")
    with pytest.raises(UsageError, match="were compared by different means and have other columns"):
        merge_result(tmp_path / "results", tmp_path / "o", MergeConfig())
    merged, _ = merged_of(tmp_path / "results", tmp_path / "o", MergeConfig(compare_index=("Result",)))
    assert merged.tables["Result"]["Torch.a.0.forward.output.0"] == {0: "pass", 1: "pass"}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = results(tmp_path)
    (tmp_path / "c.yaml").write_text("api: [Torch.mul]\ncompare_index: [Max diff]\n")
    given = ["merge_result", "-i", str(source), "-o", str(tmp_path / "o"), "-config"]
    assert main([*given, str(tmp_path / "c.yaml")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ranks 0, 1: 2 rows, 1 columns\nresult: ")
    assert main([*given, str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err.startswith("msprobe merge_result: error: the configuration ")


def test_more_rows_than_a_sheet_holds_go_on_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.comparison.reports import xlsx

    merged, paths = merged_of(results(tmp_path), tmp_path / "whole")
    monkeypatch.setattr(xlsx, "MAX_ROWS", 4)
    _, parts = merged_of(tmp_path / "results", tmp_path / "parts")
    whole, split = sheets(paths[0]), sheets(parts[0])
    assert len(merged.names) == 6
    for column in merged.tables:
        pages = [column, *sorted((name for name in split if name.startswith(f"{column} ")), key=lambda name: int(name.rsplit(" ", 1)[1]))]
        assert [line for page in pages for line in split[page][1:]] == whole[column][1:]
        assert all(split[page][0] == whole[column][0] for page in pages)


def test_a_result_that_was_cut_off_in_a_quoted_cell(tmp_path: Path) -> None:
    source = results(tmp_path)
    path = next(source.glob("compare_result_rank1*.csv"))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[1].rpartition(",")[0] + ",\"['File /home/me"]))
    with pytest.raises(UsageError, match="cut off"):
        merged_of(source, tmp_path / "o")


def test_a_cell_may_be_longer_than_the_csv_module_likes(tmp_path: Path) -> None:
    source = results(tmp_path)
    for path in source.glob("compare_result_rank*.csv"):
        path.write_text(path.read_text().replace("Torch.", "Torch." + "x" * 140_000, 1))
    assert any(len(name) > 140_000 for name in merged_of(source, tmp_path / "o")[0].names)


def test_without_a_configuration_all_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from msprobe.cli.main import main

    assert main(["merge_result", "-i", str(SAMPLE / "result"), "-o", str(tmp_path / "o")]) == 0
    assert "result: " in capsys.readouterr().out
    (tmp_path / "empty.yaml").write_text("")
    assert main(["merge_result", "-i", str(SAMPLE / "result"), "-o", str(tmp_path / "e"), "-config", str(tmp_path / "empty.yaml")]) == 0
    names = [sorted(path.name.partition("merge_")[2][14:] for path in (tmp_path / place).iterdir()) for place in "oe"]
    assert names[0] == names[1]
