"""Pairs of dumps over several processes: the same results in the same order, whatever happens to one of them."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from comparison.dumps import api, read_csv, tensor, tensor_call, write_dump
from comparison.net import Net
from msprobe.comparison import jobs
from msprobe.comparison.compare import compare
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Failure, PairReport
from msprobe.comparison.work import Unit
from msprobe.errors import UsageError


def roots(directory: Path, pairs: int = 4, changed: int = 2) -> tuple[Path, Path]:
    """Two dump roots of two steps each, `pairs` ranks in all; the relu of one of them differs."""
    for side in ("target", "golden"):
        for number in range(pairs):
            gain = 1.5 if side == "target" and number == changed else 1.0
            Net(data=1.0 + number, relu_gain=gain).write(directory / side / f"step{number % 2}" / f"rank{number // 2}")
    return directory / "target", directory / "golden"


def test_the_same_as_in_one_process(tmp_path: Path) -> None:
    target, golden = roots(tmp_path)
    one = compare(target, golden, tmp_path / "one", Options(jobs=1))
    seen: list[tuple[int, int]] = []
    two = compare(target, golden, tmp_path / "two", Options(jobs=2), lambda done, total, what: seen.append((done, total)))
    assert [report.pair for report in two.reports] == [report.pair for report in one.reports] == list(two.plan.pairs)
    assert [report.counts for report in two.reports] == [report.counts for report in one.reports]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    for ours, theirs in zip(one.reports, two.reports, strict=True):
        assert ours.csv is not None and theirs.csv is not None
        assert ours.csv.read_bytes() == theirs.csv.read_bytes()
        assert ours.csv.parent.name == theirs.csv.parent.name
    assert one.summary is not None and two.summary is not None
    assert [row["First difference"] for row in read_csv(one.summary)] == [row["First difference"] for row in read_csv(two.summary)]


def test_a_dump_that_cannot_be_read_is_a_failure_of_its_own(tmp_path: Path) -> None:
    target, golden = roots(tmp_path)
    (target / "step1" / "rank0" / "dump.json").write_text("{")
    outcome = compare(target, golden, tmp_path / "out", Options(jobs=3))
    assert len(outcome.reports) == 3 and len(outcome.failures) == 1
    assert outcome.failures[0].pair in outcome.plan.pairs and "cut off" in outcome.failures[0].message
    assert outcome.exit_code == 2


def unit(directory: Path, name: str) -> Unit:
    paths = [write_dump(directory / name / side, {"Torch.a.0.forward": api([tensor()], [tensor()])}) for side in "ab"]
    return Unit(DumpPair(paths[0], paths[1], 0, name), directory / "out", "0", Options())


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _end, (os.getpid(),)


def _end(parent: int) -> None:
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_costs_only_its_own_pair(tmp_path: Path) -> None:
    units = [unit(tmp_path, f"rank{number}") for number in range(4)]
    deadly = replace(units[1], stamp=Deadly())  # type: ignore[arg-type]
    results = list(jobs.run([units[0], deadly, *units[2:]], 2))
    assert [type(result) for result in results] == [PairReport, Failure, PairReport, PairReport]
    assert isinstance(results[1], Failure) and "SIGKILL" in results[1].message


def test_results_that_cannot_be_written_end_the_run(tmp_path: Path) -> None:
    target, golden = roots(tmp_path)
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OSError):
        compare(target, golden, tmp_path / "out", Options(jobs=2))


def test_nobody_is_left_when_the_caller_stops(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    results = jobs.run([unit(tmp_path, f"rank{number}") for number in range(20)], 2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    until = time.monotonic() + 30
    while set(psutil.Process().children()) - before and time.monotonic() < until:
        time.sleep(0.05)
    assert set(psutil.Process().children()) - before == set()


def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches the whole process group."""
    data = {f"Torch.op.{number}.forward": api([tensor(number + 0.5)] * 4, [tensor(1.0)]) for number in range(20000)}
    write_dump(tmp_path / "target" / "step0" / "rank0", data)
    for side, rank in itertools.product(("target", "golden"), range(4)):
        if (side, rank) != ("target", 0):
            shutil.copytree(tmp_path / "target" / "step0" / "rank0", tmp_path / side / "step0" / f"rank{rank}")
    command = [sys.executable, "-m", "msprobe", "compare", "-tp", str(tmp_path / "target"), "-gp", str(tmp_path / "golden")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([*command, "-o", str(tmp_path / "out"), "--jobs", "2"], start_new_session=True, env=environment)
    parent = psutil.Process(process.pid)
    until = time.monotonic() + 60
    while not parent.children() and time.monotonic() < until:
        time.sleep(0.02)
    children = parent.children()
    assert children
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []


def test_a_worker_that_is_ended_while_it_ends_says_nothing() -> None:
    """The caller has its results, and ends the workers, before they have ended by themselves."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; import atexit, os, signal; from msprobe.comparison import jobs; jobs.work(1);"
        " atexit.register(os.kill, os.getpid(), signal.SIGTERM)"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("", "") and ended.returncode == 1


@pytest.mark.parametrize(("asked", "expected"), [(None, 1), (1, 1), (3, 3), (9, 4)])
def test_how_many(tmp_path: Path, asked: int | None, expected: int) -> None:
    assert jobs.number_of_jobs([unit(tmp_path, f"rank{number}") for number in range(4)], asked) == expected


def test_large_work_is_divided_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_WORTH", 100)
    monkeypatch.setattr(jobs, "_cores", lambda: 3)
    assert jobs.number_of_jobs([unit(tmp_path, f"rank{number}") for number in range(4)], None) == 3
    assert jobs.number_of_jobs([unit(tmp_path, "rank9")], None) == 1


def test_tensors_weigh_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = []
    for name in ("rank0", "rank1"):
        paths = [tensor_call(tmp_path / name / side, [1.0, 2.0]) for side in "ab"]
        units.append(Unit(DumpPair(paths[0], paths[1], 0, name), tmp_path, "0", Options()))
    size = sum(path.stat().st_size for one in units for path in (one.pair.target, one.pair.golden))
    monkeypatch.setattr(jobs, "_WORTH", size + 1)
    monkeypatch.setattr(jobs, "_cores", lambda: 2)
    assert jobs.number_of_jobs(units, None) == 2


def test_a_pair_alone_raises_what_is_wrong(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "a", {"Torch.a.0.forward": api([tensor()], [tensor()])})
    other = write_dump(tmp_path / "b", {"Torch.b.0.forward": api([tensor()], [tensor()])})
    with pytest.raises(UsageError, match="has a partner"):
        compare(path, other, tmp_path / "out", Options(jobs=4))
