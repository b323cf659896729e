"""What goes wrong with files and streams while a command writes: one line that names the file, and no half of a file."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from comparison.dumps import api, tensor, write_dump
from comparison.net import Net
from msprobe.cli.main import main
from msprobe.comparison import report_csv
from msprobe.comparison.reports import json_lines

Captured = pytest.CaptureFixture[str]


def arguments(tmp_path: Path, *options: str) -> list[str]:
    target, golden = Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g")
    return ["compare", "-tp", str(target), "-gp", str(golden), "-o", str(tmp_path / "o"), *options]


@pytest.mark.parametrize(("module", "name", "suffix"), [(report_csv, "text_of", "csv"), (json_lines, "lines", "jsonl")])
def test_a_full_disk_names_the_file(
    module: Any, name: str, suffix: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        yield from ()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, name, full)
    assert main(arguments(tmp_path, "--jsonl")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"msprobe compare: error: {tmp_path / 'o' / 'compare_result_'}") and line.endswith(
        f".{suffix}: No space left on device"
    )
    assert not list((tmp_path / "o").glob(f"*.{suffix}"))


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_fault(closed: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shell = ["bash", "-c", f'"$@" {closed}', "-", sys.executable, "-m", "msprobe", *arguments(tmp_path)]
    done = subprocess.run(shell, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump of two ranks, to be compared with itself."""
    directory = tmp_path_factory.mktemp("large")
    data = {f"Torch.op.{number}.forward": api([tensor(number + 0.5)] * 4, [tensor(1.0)]) for number in range(4000)}
    for rank in range(2):
        write_dump(directory / "step0" / f"rank{rank}", data)
    return directory


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "xlsx"])
def test_ctrl_c_leaves_no_half_file(jobs: str, suffix: str, large: Path, tmp_path: Path) -> None:
    """Whatever lies there when the command has ended is a whole file."""
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-m", "msprobe", "compare", "-tp", str(large), "-gp", str(large)]
    process = subprocess.Popen(
        [*command, "-o", str(tmp_path / "o"), "--jobs", jobs, "--xlsx", "--jsonl"],
        start_new_session=True,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while not list((tmp_path / "o").glob(f"step0/*.{suffix}")) and time.monotonic() < until:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    for path in (tmp_path / "o").rglob("*.csv"):
        assert path.read_bytes().count(b"\n") == 20001
    for path in (tmp_path / "o").rglob("*.jsonl"):
        assert path.read_bytes().count(b"\n") == 20001
    for path in (tmp_path / "o").rglob("*.xlsx"):
        assert path.read_bytes()[-22:-18] == b"PK\x05\x06"
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("options", [["--html"], ["-fm"], ["--jobs", "2"], ["--reference", "x"], ["-cm"]])
def test_runs_take_no_options_that_would_do_nothing(options: list[str], tmp_path: Path, capsys: Captured) -> None:
    runs = [str(Net().write(tmp_path / name)) for name in "ab"]
    assert main(["compare", *options, "--runs", *runs, "-o", str(tmp_path / "o")]) == 2
    assert f"does not go with {options[0]}" in capsys.readouterr().err


def test_a_run_that_is_not_there_is_no_golden_path(tmp_path: Path, capsys: Captured) -> None:
    assert main(["compare", "--runs", str(Net().write(tmp_path / "a")), str(tmp_path / "b"), "-o", str(tmp_path / "o")]) == 2
    assert capsys.readouterr().err == f"msprobe compare: error: {tmp_path / 'b'} does not exist\n"
