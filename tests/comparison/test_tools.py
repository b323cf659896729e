"""Dumps of two tools."""

from __future__ import annotations

from pathlib import Path

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe

from .dumps import api, module, tensor, write_dump


def test_statistics_without_meta_json_that_look_like_ours_are_taken_as_such(tmp_path: Path) -> None:
    data = {"Torch.a.0.forward": api([tensor(1.0)], [tensor(2.0, Norm=2.8284271247461903)])}
    paths = write_dump(tmp_path / "t", data), write_dump(tmp_path / "g", data)
    (tmp_path / "g" / "meta.json").write_text("{}")
    report = compare(*paths, tmp_path / "o").reports[0]
    assert report.findings.exact and not report.other_calls
    assert any(f"{tmp_path}/t has no meta.json" in note for note in report.notes)
    assert not any("different tools" in note for note in report.notes)


def test_calls_that_only_one_of_two_tools_records_are_not_the_first_difference(tmp_path: Path) -> None:
    call, other = {"Torch.a.0.forward": api([tensor()], [tensor()])}, {"Torch.a.0.forward": api([tensor()], [tensor(9.0)])}
    target = write_dump(tmp_path / "t", {"VF.x.0.forward": api([tensor()], [tensor()]), **call})
    golden = write_dump(tmp_path / "g", other)
    (tmp_path / "t" / "meta.json").write_text("{}")
    text = "\n".join(line.text for line in describe(compare(target, golden, tmp_path / "o")))
    assert "\nFirst difference: Torch.a.0.forward (inputs equal, output differs)" in text
    assert "First call without partner (earlier than that): VF.x.0.forward, in the target only" in text


def test_calls_that_only_one_of_two_levels_records_are_not_the_first_difference(tmp_path: Path) -> None:
    inner = {"Functional.linear.0.forward": api([tensor()], [tensor(9.0)])}

    def outer(out: float) -> dict[str, object]:
        return {"Module.a.Linear.forward.0": module([tensor()], [tensor(out)])}

    target = write_dump(tmp_path / "t", outer(9.0), level="L0", stack={})
    golden = write_dump(tmp_path / "g", {**inner, **outer(8.0)}, level="mix", stack={})
    text = "\n".join(line.text for line in describe(compare(target, golden, tmp_path / "o")))
    assert "\nFirst difference: Module.a.Linear.forward.0 (inputs equal, output differs)" in text
    assert "note: the target was recorded at level L0, the golden run at mix: " in text
