"""msprobe.compare and msprobe.assert_same."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msprobe
from comparison.dumps import api, read_csv, save_array, tensor, tensor_call, write_dump
from comparison.net import Net
from comparison.ranks import write_ranks
from comparison.test_ranks import all_reduce, pipeline
from msprobe.errors import DumpFormatError, MsprobeException, UsageError


@pytest.fixture
def nets(tmp_path: Path) -> tuple[Path, Path]:
    return Net(fc_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g")


def test_importing_msprobe_imports_no_numpy_and_no_torch() -> None:
    heavy = {"numpy", "torch", "pandas", "msprobe.comparison"}
    code = f"import sys, msprobe; print({heavy} & set(sys.modules), 'compare' in dir(msprobe))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set() True\n"


def test_comparing_imports_no_torch(nets: tuple[Path, Path]) -> None:
    code = f"import sys, msprobe; msprobe.compare({str(nets[0])!r}, {str(nets[1])!r}); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'comparee'"):
        msprobe.comparee  # type: ignore[attr-defined] # noqa: B018


def test_the_first_difference(nets: tuple[Path, Path]) -> None:
    found = msprobe.compare(*nets)
    first = found.first_difference
    assert first is not None
    assert (first.call, first.kind, first.step, first.rank) == ("Functional.linear.0.forward", "output", None, None)
    assert first.module == "Module.blocks.0.fc.Linear.forward.0"
    assert (first.file, first.line) == ("/home/me/model.py", 100)
    assert str(found) == str(first) == first.sentence
    assert "model.py:100" in first.sentence
    assert first.propagation is not None and first.propagation.consumers[0] == "Functional.relu.0.forward"
    assert (found.exit_code, found.passed) == (1, False)
    assert repr(found).startswith("<Comparison, exit code 1: Inputs equal")


def test_nothing_is_written(nets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    msprobe.compare(*nets).records  # noqa: B018
    assert list((tmp_path / "cwd").iterdir()) == []


def test_nothing_differs(nets: tuple[Path, Path]) -> None:
    found = msprobe.compare(nets[1], nets[1])
    assert (found.exit_code, found.passed, found.first_difference, found.problems) == (0, True, None, [])
    assert str(found) == "No difference in what both sides recorded."
    msprobe.assert_same(nets[1], nets[1])
    msprobe.assert_same(nets[1], nets[1], exact=True)


def test_a_call_of_one_side(tmp_path: Path) -> None:
    both = {"Torch.a.0.forward": api([tensor()], [tensor()])}
    target = write_dump(tmp_path / "t", {"Torch.extra.0.forward": api([tensor()], [tensor()]), **both})
    first = msprobe.compare(target, write_dump(tmp_path / "g", {"Torch.a.0.forward": api([tensor(9.0)], [tensor()])})).first_difference
    assert first is not None and (first.call, first.kind) == ("Torch.extra.0.forward", "unmatched")


def test_steps_and_ranks(tmp_path: Path) -> None:
    for step in (0, 1):
        write_ranks(tmp_path / "t" / f"step{step}", pipeline(5.0 if step else 1.0))
        write_ranks(tmp_path / "g" / f"step{step}", pipeline(1.0))
    first = msprobe.compare(tmp_path / "t", tmp_path / "g").first_difference
    assert first is not None and (first.step, first.rank, first.call) == (1, 2, "Torch.mul.0.forward")
    assert msprobe.compare(tmp_path / "t", tmp_path / "g", steps=0).passed
    some = msprobe.compare(tmp_path / "t", tmp_path / "g", steps="0-1", ranks=[0])
    assert {(row["step"], row["rank"]) for row in some.records} == {(0, 0), (1, 0)}


def test_records_are_the_rows_of_the_csv(nets: tuple[Path, Path], tmp_path: Path) -> None:
    found = msprobe.compare(*nets)
    (path,) = found.to_csv(tmp_path / "o")
    lines = read_csv(path)
    assert re.fullmatch(r"compare_result_\d+\.csv", path.name)
    assert list(found.records[0]) == ["step", "rank", *lines[0]]
    assert [row["NPU Name"] for row in found.records] == [line["NPU Name"] for line in lines]
    assert found.records[0]["NPU max"] == 2.0


def test_the_files_of_a_root_are_those_of_the_command(tmp_path: Path) -> None:
    for side, gain in (("t", 9.0), ("g", 2.0)):
        write_ranks(tmp_path / side / "step0", all_reduce({0: 1.0, 1: gain}))
    paths = msprobe.compare(tmp_path / "t", tmp_path / "g").to_csv(tmp_path / "o")
    names = [re.sub(r"\d{8,}", "T", str(path.relative_to(tmp_path / "o"))) for path in paths]
    assert names == ["step0/compare_result_rank0_T.csv", "step0/compare_result_rank1_T.csv", "summary_T.csv"]
    assert read_csv(paths[-1])[0]["Result file"] == paths[0].name


def test_the_page(nets: tuple[Path, Path], tmp_path: Path) -> None:
    path = msprobe.compare(*nets).to_html(tmp_path / "new" / "page.html")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!") and "linear" in text and 'id="tree-0"' in text


def test_rows_need_pandas(nets: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MsprobeException, match=r"pip install pandas; records needs nothing"):
        msprobe.compare(*nets).rows  # noqa: B018


def test_rows_are_a_data_frame_of_the_records(nets: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    class DataFrame:
        @classmethod
        def from_records(cls, records: list[dict[str, Any]]) -> tuple[str, int]:
            return "frame", len(records)

    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=DataFrame))
    assert msprobe.compare(*nets).rows == ("frame", 41)


def test_rows_with_pandas_itself(nets: tuple[Path, Path]) -> None:
    pytest.importorskip("pandas")
    rows = msprobe.compare(*nets).rows
    assert len(rows) == 41 and set(rows["Result"]) == {"pass", "error", "warning"}


def test_the_text_of_a_failed_assertion(nets: tuple[Path, Path]) -> None:
    with pytest.raises(AssertionError) as caught:
        msprobe.assert_same(*nets)
    first, *rest = str(caught.value).splitlines()
    assert first == msprobe.compare(*nets).first_difference.sentence  # type: ignore[union-attr]
    assert rest[0] == "  at /home/me/model.py:100 in forward: y = self.part0(x)"
    assert any(line.startswith("    target  3.5") for line in rest) or any("target" in line for line in rest)
    assert any(line.startswith("  Functional.linear.0.forward.output.0: error") for line in rest)


def test_rounding_passes_unless_every_bit_is_asked_for(tmp_path: Path) -> None:
    values = np.array([1.0, 2.0], np.float32)
    target, golden = tensor_call(tmp_path / "t", values), tensor_call(tmp_path / "g", np.nextafter(values, np.float32(9)))
    msprobe.assert_same(target, golden)
    with pytest.raises(AssertionError, match=r"1 values agree up to rounding only, .* Torch\.op\.0\.forward\.output\.0 \(relative size"):
        msprobe.assert_same(target, golden, exact=True)


def test_what_could_not_be_compared_does_not_pass(tmp_path: Path) -> None:
    for side in "tg":
        write_ranks(tmp_path / side, all_reduce({0: 1.0, 1: 2.0}))
    (tmp_path / "t" / "rank1" / "dump.json").write_text("{")
    with pytest.raises(AssertionError, match=r"Not everything could be compared: rank1: .*dump\.json"):
        msprobe.assert_same(tmp_path / "t", tmp_path / "g")


def test_a_value_that_could_not_be_read_does_not_pass(tmp_path: Path) -> None:
    for side in "tg":
        records = [save_array(tmp_path / side, f"Torch.a.0.forward.{place}.pt", [1.0]) for place in ("input.0", "output.0")]
        write_dump(tmp_path / side, {"Torch.a.0.forward": api(records[:1], records[1:])}, task="tensor")
    (tmp_path / "t" / "dump_tensor_data" / "Torch.a.0.forward.output.0.pt").unlink()
    with pytest.raises(AssertionError, match="1 tensor file could not be read"):
        msprobe.assert_same(tmp_path / "t", tmp_path / "g")
    with pytest.raises(AssertionError):
        msprobe.assert_same(tmp_path / "t", tmp_path / "g", exact=True)


def test_a_rank_of_one_side_does_not_pass(tmp_path: Path) -> None:
    write_ranks(tmp_path / "t", all_reduce({0: 1.0, 1: 2.0}))
    write_ranks(tmp_path / "g", {0: all_reduce({0: 1.0, 1: 2.0})[0]})
    with pytest.raises(AssertionError, match="rank1 is in the target only"):
        msprobe.assert_same(tmp_path / "t", tmp_path / "g")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stepps": 1}, "compare has no option 'stepps'; did you mean steps"),
        ({"xyz": 1}, "there are: data_mapping"),
        ({"jobs": 2}, "jobs is an option of the command"),
        ({"reports": {"xlsx"}}, "reports is an option of the command"),
        ({"steps": "a"}, "steps a: 'a' is no number"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str, nets: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match=words):
        msprobe.compare(*nets, **options)


def test_wrong_paths(tmp_path: Path, nets: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        msprobe.compare(nets[0], tmp_path / "none")
    nets[1].write_text("{")
    with pytest.raises(DumpFormatError):
        msprobe.assert_same(*nets)


def test_data_mapping(tmp_path: Path) -> None:
    target = write_dump(tmp_path / "t", {"Torch.a.0.forward": api([tensor()], [tensor(2.0)])})
    golden = write_dump(tmp_path / "g", {"Torch.b.0.forward": api([tensor()], [tensor(2.0)])})
    rows = {f"Torch.a.0.forward.{key}": f"Torch.b.0.forward.{key}" for key in ("input.0", "output.0")}
    assert msprobe.compare(target, golden, data_mapping=rows).passed
    (tmp_path / "rows.yaml").write_text("\n".join(f"{ours}: {theirs}" for ours, theirs in rows.items()))
    assert msprobe.compare(target, golden, data_mapping=tmp_path / "rows.yaml").passed


def test_mapping_files(tmp_path: Path) -> None:
    target = write_dump(tmp_path / "t", {"Torch.a.0.forward": api([tensor()], [tensor(2.0)])})
    golden = write_dump(tmp_path / "g", {"Torch.b.0.forward": api([tensor()], [tensor(2.0)])})
    (tmp_path / "m.yaml").write_text("calls: {Torch.a: Torch.b}\n")
    (tmp_path / "am.yaml").write_text("Torch.a: Torch.b\n")
    with pytest.raises(UsageError, match="has a partner"):
        msprobe.compare(target, golden)
    assert msprobe.compare(target, golden, mapping=tmp_path / "m.yaml").passed
    assert msprobe.compare(target, golden, api_mapping=str(tmp_path / "am.yaml")).passed
    with pytest.raises(UsageError, match=r"none\.yaml"):
        msprobe.compare(target, golden, mapping=tmp_path / "none.yaml")


def test_a_third_dump_in_higher_precision(nets: tuple[Path, Path]) -> None:
    assert msprobe.compare(nets[1], nets[1], reference=nets[1]).passed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "the target must be a path, a str or a Path, not NoneType"),
        (3, "the target must be a path, a str or a Path, not int"),
        (b"x", "the target must be a path, a str or a Path, not bytes"),
        ("", "the target path is empty"),
        ("s3://bucket/run", "the target s3://bucket/run is a URL"),
        (".", "holds no dump"),
    ],
)
def test_what_is_no_path_is_told(given: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = Net().write(tmp_path / "g")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UsageError) as caught:
        msprobe.compare(given, golden)
    assert said in str(caught.value)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    path = Net().write(tmp_path / "a b")
    assert msprobe.compare(f"file://{path}", path).passed


@pytest.mark.parametrize(
    "option",
    [
        {"fuzzy": "yes"},
        {"names": 1},
        {"tensors": 3},
        {"data_mapping": 5},
        {"data_mapping": {"a": 3}},
        {"cell_mapping": True},
        {"mapping": {"modules": {}}},
        {"reference": 3},
        {"steps": 3.5},
        {"ranks": True},
    ],
    ids=str,
)
def test_options_of_a_wrong_type_are_told(option: dict[str, Any], tmp_path: Path) -> None:
    path = Net().write(tmp_path / "a")
    with pytest.raises(UsageError, match=next(iter(option))):
        msprobe.compare(path, path, **option)


def test_none_is_no_option(tmp_path: Path) -> None:
    path = Net().write(tmp_path / "a")
    assert msprobe.compare(path, path, steps=None, fuzzy=None, mapping=None, reference=None, data_mapping=None).passed
