from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe.errors import UsageError
from msprobe.format.isolation import append_line
from msprobe.isolation.child import Ended
from msprobe.isolation.events import Progress, progress
from msprobe.isolation.golden import Golden, GoldenRank

FINE, FAILED = Ended(0, ""), Ended(1, "ValueError: no")


def read(tmp_path: Path, labels: list[str], events: list[dict[str, Any]], ended: Ended = FINE) -> Progress:
    path = tmp_path / "events.jsonl"
    for event in events:
        append_line(str(path), event)
    return progress(path, Golden(tmp_path, 1, {label: GoldenRank(label, tmp_path, ("a",), {}) for label in labels}), ended)


def of_rank(rank: int | None, *kinds: str, **more: Any) -> list[dict[str, Any]]:
    shared = {"step": 1, "rank": rank, "directory": f"/dump/{rank}", **more}
    return [{"event": "constructed"}, *({"event": kind, **shared} for kind in kinds)]


def test_a_whole_run(tmp_path: Path) -> None:
    events = [*of_rank(0, "start", "recording", "recorded"), *of_rank(1, "start", "recording", "recorded")]
    found = read(tmp_path, ["rank0", "rank1"], events)
    assert found.directories == {"rank0": Path("/dump/0"), "rank1": Path("/dump/1")}
    assert found.whole == {"rank0", "rank1"} and not found.failed


def test_a_failure_after_the_step_is_none(tmp_path: Path) -> None:
    assert not read(tmp_path, ["proc7"], of_rank(None, "start", "recording", "recorded"), FAILED).failed


def test_a_failure_within_the_step(tmp_path: Path) -> None:
    assert read(tmp_path, ["proc7"], of_rank(None, "start", "recording"), FAILED).failed


def test_a_step_that_only_the_end_of_the_process_ended(tmp_path: Path) -> None:
    events = of_rank(None, "start", "recording", "recorded", at_exit=True)
    assert read(tmp_path, ["proc7"], events, FAILED).failed
    (tmp_path / "events.jsonl").unlink()
    assert not read(tmp_path, ["proc7"], events).failed


@pytest.mark.parametrize(
    ("events", "ended", "message"),
    [
        ([], FINE, "never constructed a PrecisionDebugger"),
        (of_rank(0), FAILED, r"failed \(exit code 1: ValueError: no\) before it called start"),
        (of_rank(0, "start", step=0), FINE, "start.. was called in step 0, and never in step 1"),
        (of_rank(0, "start"), FAILED, r"in step 1, and recording did not begin; the script ended \(exit code 1: ValueError: no\)"),
        (of_rank(3, "start"), FINE, "the golden run has rank0 and the script ran as rank3: nothing belongs to rank0"),
        (of_rank(None, "start"), FINE, "the script ran as a process without rank"),
    ],
)
def test_what_cannot_be_judged_says_why(tmp_path: Path, events: list[dict[str, Any]], ended: Ended, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, ["rank0"], events, ended)
