"""Processes killed at random moments: the files under their final names are valid and hold all but the last second."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import last_second
import warm_python
from msprobe.format import layout, reader
from msprobe.writer import growing_file

# Adds entries without pause, the larger the sooner the disk is busy; says on standard output what is finished and when.
CHILD = """
import os, sys, time
from msprobe.writer import StepWriter
root, size, flushing = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "flushing"
number = 0
for step in range(1000):
    writer = StepWriter(f"{root}/step{step}", task="statistics", level="mix")
    for _ in range(1500):
        entry = writer.add(f"Torch.add.{number}.forward", {"text": "x" * size})
        writer.add_call(f"Torch.add.{number}.forward", None)
        writer.add_stack(f"Torch.add.{number}.forward", number % 5, [f"frame {number % 5}"])
        entry.done = True
        os.write(1, f"{step} {number} {time.monotonic()}\\n".encode())
        number += 1
        if flushing and number % 40 == 0:
            writer.flush()
        if number % 25 == 0:
            time.sleep(0.001)
    writer.close()
"""
KILLING = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(growing_file.__file__).parents[2])}


def start(root: Path, log: Path, size: int, mode: str) -> subprocess.Popen[bytes]:
    with open(log, "wb") as output:
        command = [sys.executable, "-c", CHILD, str(root), str(size), mode]
        return subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=ENVIRONMENT)


def check(root: Path, log: Path, end: float) -> int:
    """Every document is valid and holds what was finished before `end`; returns how many entries were found."""
    finished: dict[int, set[str]] = {}
    for line in log.read_text().splitlines():
        parts = line.split()
        if len(parts) == 3 and float(parts[2]) < end:
            finished.setdefault(int(parts[0]), set()).add(f"Torch.add.{parts[1]}.forward")
    found = 0
    for step, directory in layout.steps(root).items():
        present = [name for name in os.listdir(directory) if not name.startswith(".")]
        assert set(present) <= {"dump.json", "stack.json", "construct.json", "meta.json"}
        for name in present:
            json.loads((directory / name).read_bytes())
        if step in finished:
            assert finished[step] <= set(reader.read_dump(directory).data)
            assert finished[step] <= set(reader.read_construct(directory))
            assert finished[step] <= set(reader.read_stack(directory))
        if "dump.json" in present:
            found += len(reader.read_dump(directory).data)
    assert set(finished) <= set(layout.steps(root)), "a step is missing"
    return found


def kill_at_random(tmp_path: Path, seed: int, signals: tuple[signal.Signals, ...] = KILLING, may_lose: float = 1.0) -> int:
    chance = random.Random(seed)
    root, log = tmp_path / f"dump{seed}", tmp_path / f"log{seed}"
    child = start(root, log, chance.choice([10, 3000, 60_000]), chance.choice(["flushing", "plain"]))
    deadline = time.monotonic() + 30
    while not log.stat().st_size:
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 1.6 if seed % 4 == 0 else 0.5))
    killed = time.monotonic()  # before the wait: a process that waits for the disk dies when the disk has answered
    child.send_signal(chance.choice(signals))
    child.wait()
    moments = [float(line.split()[2]) for line in log.read_text().splitlines() if line.count(" ") == 2]
    return check(root, log, last_second.began(moments, killed, may_lose) if may_lose else math.inf)


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_a_random_moment(seed: int, tmp_path: Path) -> None:
    kill_at_random(tmp_path, seed)


@pytest.mark.parametrize("seed", range(8, 12))
def test_interrupted_at_a_random_moment(seed: int, tmp_path: Path) -> None:
    """Ctrl-C, in close() and in flush() too: the process ends by itself, so nothing at all is lost."""
    kill_at_random(tmp_path, seed, (signal.SIGINT,), may_lose=0)
    assert not list(tmp_path.glob("**/.*"))


@pytest.mark.slow
def test_killed_often(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:  # they wait most of the time
        killed = pool.map(lambda seed: kill_at_random(tmp_path, seed), range(100, 140))
        interrupted = pool.map(lambda seed: kill_at_random(tmp_path, seed, (signal.SIGINT,), may_lose=0), range(200, 230))
        assert sum(killed) > 1000 and sum(interrupted) > 1000
    assert not list(tmp_path.glob("dump2*/**/.*"))


IN_THE_MIDDLE = """
import os, signal, sys
from msprobe.writer import StepWriter, exchange, growing_file, step_files
moment, count = sys.argv[2], int(sys.argv[3])
real = {"pwritev": os.pwritev, "ftruncate": os.ftruncate, "unlink": os.unlink, "link": os.link, "open": os.open}
def die(*arguments, **more):
    global count
    count -= 1
    if count == 0:
        if moment == "pwritev":
            data = b"".join(arguments[1])
            os.pwrite(arguments[0], data[: len(data) // 2], arguments[2])
        os.kill(os.getpid(), signal.SIGKILL)
    return real[moment](*arguments, **more)
if moment == "exchange":
    kernel = exchange._atomic_exchange
    def dying(first, second):
        global count
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return kernel(first, second)
    exchange._atomic_exchange = dying
else:
    setattr(os, moment, die)
writer = StepWriter(sys.argv[1], task="statistics", level="mix")
for number in range(12):
    print(number, flush=True)
    writer.add(f"n{number}", {"text": "x" * 9000}, True)
    writer.add_call(f"n{number}", None)
    writer.add_stack(f"n{number}", number % 2, ["frame"])
    writer.meta["number"] = number
    writer.flush()
writer.close()
"""


@pytest.mark.parametrize("moment", ["pwritev", "ftruncate", "unlink", "link", "open", "exchange"])
def test_killed_inside_each_system_call(moment: str, tmp_path: Path, strict: Any) -> None:
    """Whichever call it is, the first to the last: what the flush before wrote is there."""
    for count in (1, 2, 3, 4, 5, 7, 10, 14, 25, 40):
        directory = tmp_path / str(count)
        result = subprocess.run(
            [*warm_python.command(), "-c", IN_THE_MIDDLE, str(directory), moment, str(count)],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            check=False,
        )
        assert result.returncode in (0, -signal.SIGKILL), result.stderr
        numbers = result.stdout.split()
        for name in (name for name in os.listdir(directory) if directory.exists() and not name.startswith(".")):
            strict(directory / name)
        if len(numbers) > 1:
            flushed = {f"n{number}" for number in range(len(numbers) - 1)}
            assert flushed <= set(strict(directory / "dump.json")["data"])
            assert flushed <= set(strict(directory / "construct.json"))
            assert flushed <= set(reader.read_stack(directory))
