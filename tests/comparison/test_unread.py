"""Null against null, where a null stands for a value that nobody looked at, is not compared; None against None is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Outcome
from msprobe.errors import UsageError

from .dumps import Json, api, module, read_csv, save_array, tensor, write_dump

NAME = "Module.m.M.forward.0"
CALL = {NAME: {**module([tensor()], [tensor()]), "input_kwargs": {"cache": None, "mask": None}}}
CACHE = {"a Cache": {"input.cache": [NAME]}}


def dump(directory: Path, unread: Any = None, data: Json = CALL, **meta: Any) -> Path:
    path = write_dump(directory, data, stack={})
    (directory / "meta.json").write_text(json.dumps({"msprobe": "1", **({"unread": unread} if unread is not None else {}), **meta}))
    return path


def told(outcome: Outcome) -> str:
    return "\n".join(line.text for line in describe(outcome))


def rows(outcome: Outcome) -> dict[str, tuple[str, str]]:
    (report,) = outcome.reports
    assert report.csv is not None
    return {row["NPU Name"].removeprefix(f"{NAME}."): (row["Result"], row["Err_message"]) for row in read_csv(report.csv)}


@pytest.mark.parametrize(
    ("target", "golden", "reason"),
    [
        (CACHE, CACHE, "a Cache is not recorded"),
        (CACHE, {"a StaticCache": {"input.cache": [NAME]}}, "a Cache (target) and a StaticCache (golden dump) are not recorded"),
        (CACHE, None, "a Cache is not recorded (target; the golden dump has null, too)"),
        (None, CACHE, "a Cache is not recorded (golden dump; the target has null, too)"),
    ],
)
def test_it_is_not_compared(target: Any, golden: Any, reason: str, tmp_path: Path) -> None:
    outcome = compare(dump(tmp_path / "t", target), dump(tmp_path / "g", golden), tmp_path / "o")
    found = rows(outcome)
    assert found["input.cache"] == ("not compared", json.dumps([f"not compared: {reason}"]))
    assert [found[key][0] for key in ("input.0", "input.mask", "output.0")] == ["pass"] * 3
    assert outcome.exit_code == 0 and outcome.reports[0].lost == 0
    assert "4 rows matched, 0 unmatched: 3 pass, 0 warning, 0 error, 1 not compared\n" in told(outcome)
    assert told(outcome).endswith(
        f"\nNo difference in what both sides recorded; 1 value is recorded on neither side (first: {NAME}.input.cache: {reason})."
    )


def test_metrics_of_what_was_not_compared_have_no_value(tmp_path: Path) -> None:
    outcome = compare(dump(tmp_path / "t", CACHE), dump(tmp_path / "g", CACHE), tmp_path / "o")
    (row,) = (row for row in read_csv(outcome.reports[0].csv) if row["NPU Name"].endswith("cache"))
    assert {row[key] for key in ("Max diff", "L2norm diff", "NormRelativeErr")} == {"N/A"}


def test_a_dump_without_meta_is_as_it_was(tmp_path: Path) -> None:
    paths = [write_dump(tmp_path / side, CALL, stack={}) for side in "tg"]
    outcome = compare(*paths, tmp_path / "o")
    assert rows(outcome)["input.cache"][0] == "pass"
    assert told(outcome).endswith("\nNo difference in what both sides recorded.")


LIST = json.dumps({"unread": CACHE})
SHAPE = 'its "unread" is not what msprobe writes'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", " is empty"),
        ("[1]", " holds a JSON array instead of an object"),
        (LIST[:-20], f" is cut off: nothing follows what begins at line 1 column {LIST.index(NAME)}"),
        ('{"unread": 3}', f": {SHAPE}"),
        ('{"unread": {"a Cache": ["input.cache"]}}', f": {SHAPE}"),
        ('{"unread": {"a Cache": {"input.cache": 1}}}', f": {SHAPE}"),
        ('{"unread": {"a Cache": {"input.cache": [1]}}}', f": {SHAPE}"),
    ],
)
def test_what_a_damaged_meta_listed_nobody_knows(text: str, said: str, tmp_path: Path) -> None:
    """Each of its nulls may have been a value."""
    paths = [write_dump(tmp_path / side, CALL, stack={}) for side in "tg"]
    paths[0].with_name("meta.json").write_text(text)
    paths[1].with_name("meta.json").write_text("{}")
    outcome = compare(*paths, tmp_path / "o")
    reason = "what may be a value or None (its meta.json cannot be read) is not recorded (target; the golden dump has null, too)"
    found = rows(outcome)
    assert found["input.cache"] == found["input.mask"] == ("not compared", json.dumps([f"not compared: {reason}"]))
    assert [found[key][0] for key in ("input.0", "output.0")] == ["pass"] * 2 and outcome.exit_code == 0
    assert f"note: {paths[0].with_name('meta.json')}{said}: nulls that may stand for values are not compared" in told(outcome)
    assert told(outcome).splitlines()[-1].endswith(f"2 values are recorded on neither side (first: {NAME}.input.cache: {reason}).")


def test_both_metas_are_damaged(tmp_path: Path) -> None:
    paths = [write_dump(tmp_path / side, CALL, stack={}) for side in "tg"]
    for path in paths:
        path.with_name("meta.json").write_text("{")
    outcome = compare(*paths, tmp_path / "o")
    assert rows(outcome)["input.cache"][1] == '["not compared: what may be a value or None (its meta.json cannot be read) is not recorded"]'
    assert told(outcome).count("nulls that may stand for values are not compared") == 2


def test_more_places_than_are_listed(tmp_path: Path) -> None:
    """Nobody knows of the other nulls whether they are None."""
    outcome = compare(dump(tmp_path / "t", CACHE, unread_more=2), dump(tmp_path / "g", CACHE), tmp_path / "o")
    assert [rows(outcome)[key][0] for key in ("input.cache", "input.mask")] == ["not compared"] * 2
    assert "2 values are recorded on neither side" in told(outcome)


def test_a_value_against_a_null_is_an_error_still(tmp_path: Path) -> None:
    other = {NAME: {**CALL[NAME], "input_kwargs": {"cache": {"type": "int", "value": 1}, "mask": None}}}
    outcome = compare(dump(tmp_path / "t", None, other), dump(tmp_path / "g", CACHE), tmp_path / "o")
    assert rows(outcome)["input.cache"][0] == "error" and outcome.exit_code == 1


def test_what_differs_besides(tmp_path: Path) -> None:
    """`inputs equal` would say more than is known."""
    other = {NAME: {**CALL[NAME], "output": [tensor(2.0)]}}
    outcome = compare(dump(tmp_path / "t", CACHE, other), dump(tmp_path / "g", CACHE), tmp_path / "o")
    assert outcome.exit_code == 1
    assert f"First difference: {NAME} (inputs equal as far as recorded, output differs)" in told(outcome)
    assert told(outcome).startswith("Inputs equal as far as recorded, `m` differs (forward")
    outcome = compare(dump(tmp_path / "t", None, other), dump(tmp_path / "g", None), tmp_path / "o")
    assert f"First difference: {NAME} (inputs equal, output differs)" in told(outcome)


def test_the_module_whose_code_it_is(tmp_path: Path) -> None:
    def side(name: str, inner: float) -> Path:
        data = {"Torch.f.0.forward": api([tensor(inner)], [tensor(inner)]), **CALL}
        path = dump(tmp_path / name, CACHE, data)
        path.with_name("construct.json").write_text(json.dumps({"Torch.f.0.forward": NAME, NAME: None}))
        return path

    outcome = compare(side("t", 2.0), side("g", 1.0), tmp_path / "o")
    assert f"First difference: {NAME}, before it calls Torch.f.0.forward (its inputs agree as far as recorded, input.0 of" in told(outcome)
    assert told(outcome).startswith("Inputs equal as far as recorded, the code of `m` before it calls")


def test_beside_another_reason_for_exit_code_1(tmp_path: Path) -> None:
    more = {**CALL, "Module.n.N.forward.0": module([tensor(), tensor()], [tensor()])}
    fewer = {**CALL, "Module.n.N.forward.0": module([tensor()], [tensor()])}
    outcome = compare(dump(tmp_path / "t", CACHE, more), dump(tmp_path / "g", CACHE, fewer), tmp_path / "o")
    assert "; 1 value is recorded on neither side (first: " in told(outcome).splitlines()[-1] and outcome.exit_code == 1


def test_beside_rounding(tmp_path: Path) -> None:
    other = {NAME: {**CALL[NAME], "output": [tensor(1.0, Mean=1.0 + 1e-8)]}}
    outcome = compare(dump(tmp_path / "t", CACHE, other), dump(tmp_path / "g", CACHE), tmp_path / "o")
    assert "No difference beyond rounding; the first within rounding" in told(outcome)
    assert told(outcome).splitlines()[-1].startswith("  1 value is recorded on neither side")


def test_nothing_but_unread_values_is_no_comparison(tmp_path: Path) -> None:
    paths = [write_dump(tmp_path / side, {"x.0.debug": None}, level="debug", name="debug.json") for side in "tg"]
    for path in paths:
        path.with_name("meta.json").write_text(json.dumps({"unread": {"a set": {"": ["x.0.debug"]}}}))
    outcome = compare(*paths, tmp_path / "o")
    assert outcome.exit_code == 2 and "a set is not recorded" in outcome.reports[0].nothing_measured


def test_tensor_dumps(tmp_path: Path) -> None:
    for side in "tg":
        record = save_array(tmp_path / side, "Torch.a.0.forward.input.0.pt", [1.0, 2.0])
        write_dump(tmp_path / side, {"Torch.a.0.forward": api([record, None], [])}, task="tensor", stack={})
        (tmp_path / side / "meta.json").write_text(json.dumps({"unread": {"a set": {"input.1": ["Torch.a.0.forward"]}}}))
    outcome = compare(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", tmp_path / "o")
    (row,) = (row for row in read_csv(outcome.reports[0].csv) if row["NPU Name"] == "Torch.a.0.forward.input.1")
    assert (row["Result"], row["Cosine"]) == ("not compared", "unsupported") and outcome.exit_code == 0


def test_checksums(tmp_path: Path) -> None:
    call = {NAME: {**module([tensor(md5="0a1b2c3d")], [tensor(md5="0a1b2c3d")]), "input_kwargs": {"cache": None, "mask": None}}}
    outcome = compare(dump(tmp_path / "t", CACHE, call), dump(tmp_path / "g", CACHE, call), tmp_path / "o")
    assert [rows(outcome)[key][0] for key in ("input.cache", "input.mask")] == ["not compared", "pass"]


def test_a_call_of_another_name(tmp_path: Path) -> None:
    """Each side lists its own names."""
    other = "Module.m.Other.forward.0"
    outcome = compare(
        dump(tmp_path / "t", None), dump(tmp_path / "g", {"a Cache": {"input.cache": [other]}}, {other: CALL[NAME]}), tmp_path / "o"
    )
    assert rows(outcome)["input.cache"][0] == "not compared"


def test_all_reports_are_written(tmp_path: Path) -> None:
    options = Options(reports=frozenset({"jsonl", "html", "xlsx"}))
    outcome = compare(dump(tmp_path / "t", CACHE), dump(tmp_path / "g", CACHE), tmp_path / "o", options)
    text = outcome.reports[0].jsonl.read_text()
    assert "a Cache is not recorded" in text and outcome.html.exists()


def test_values_that_are_nested_differently(tmp_path: Path) -> None:
    values = {"t": [tensor(), tensor()], "g": {"a": tensor(), "b": tensor()}}
    paths = [write_dump(tmp_path / side, {"x.0.debug": value}, level="debug", name="debug.json") for side, value in values.items()]
    reason = "both list x.0.debug, but its values are nested differently: 0, 1 in the target, a, b in the golden dump"
    with pytest.raises(UsageError, match=f"has a partner in {paths[1]}: {reason}"):
        compare(*paths, tmp_path / "o")
