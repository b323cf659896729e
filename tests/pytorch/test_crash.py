"""Whatever ends the training, at whatever moment: the JSON is valid and holds what was finished more than a second before."""

from __future__ import annotations

import math
import os
import random
import re
import signal
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from capturing import Run, environment, limited

import last_second
import warm_python
from msprobe.errors import DumpFormatError
from msprobe.format import tensor_file

PROGRAM = Path(__file__).with_name("crash_training.py")
WAYS = {"SIGKILL": -signal.SIGKILL, "SIGTERM": -signal.SIGTERM, "_exit": 7, "abort": -signal.SIGABRT, "SIGINT": -signal.SIGINT, "exit": 5}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@dataclass
class Ended:
    """What became of a process."""

    status: int
    out: str
    err: str


class Server:
    """Runs programs in processes of their own."""

    def run(self, directory: Path, arguments: list[str], watch: Callable[[int], None] | None = None) -> Ended:
        """Run it to its end; `watch(pid)` is called while it runs."""
        out, err = directory / "out", directory / "err"
        environ = {**environment(), "WARM_PYTHON_END": "whole"}
        with open(os.devnull) as nothing, out.open("w") as to_out, err.open("w") as to_err:
            started = warm_python.started(arguments, environ, directory, [nothing, to_out, to_err])
        with started as process, limited(120):
            if watch is not None:
                watch(process.pid)
            status = process.wait()
        return Ended(status, out.read_text(), err.read_text())


@pytest.fixture(scope="module")
def server() -> Server:
    return Server()


def train_until_the_end(
    server: Server, directory: Path, way: str, after: float, level: str = "mix", task: str = "statistics", pause: float = 0.0
) -> None:
    """Run the training until it ends, in its own way or killed from outside; `pause`: seconds that each iteration waits for its data."""

    def kill(pid: int) -> None:
        log = directory / "log"
        while not (log.exists() and log.stat().st_size):
            time.sleep(0.01)
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)

    arguments = [PROGRAM, directory / "dump", directory / "log", way, after, level, task, pause]
    ended = server.run(directory, list(map(str, arguments)), kill if way == "outside" else None)
    assert ended.status == (-signal.SIGKILL if way == "outside" else WAYS[way]), ended.err


def check(directory: Path, level: str = "mix", may_lose: bool = True) -> int:
    """Every file of every step is valid and complete up to a second before the last line of the log, or to the last; gives the number of
    checked calls."""
    lines = [line.split(" ", 2) for line in (directory / "log").read_text().splitlines()]
    moments = [float(moment) for moment, *_ in lines]
    before = last_second.began(moments, moments[-1]) if may_lose else math.inf
    run = Run(directory / "dump")
    finished: dict[int, list[str]] = {}
    pows: dict[int, int] = {}
    for moment, number, name in lines:
        if name == "pow":
            name = f"Tensor.pow.{pows.get(int(number), 0)}.forward"
            pows[int(number)] = pows.get(int(number), 0) + 1
            if level == "L0":
                continue
        elif not name.endswith(tuple("0123456789")) or (level == "L1" and name.startswith("Module")):
            continue
        if float(moment) < before:
            finished.setdefault(int(number), []).append(name)
    checked = 0
    for number in run.steps:
        if all(place.name.startswith(".") for place in (run.root / f"step{number}").iterdir()):
            continue  # ended while the files were written for the first time: they have no names yet that anybody reads
        step = run.step(number)
        dump, construct, stack = step.dump, step.construct, step.stack
        assert list(dump) == ["task", "level", "framework", "dump_data_dir", "data"]
        data = dump["data"]
        missing = [name for name in finished.get(number, []) if name not in data]
        assert missing == [], f"step {number}: {len(missing)} of {len(finished[number])} calls are missing, the first: {missing[0]}"
        assert all("output" in data[name] for name in finished.get(number, []))
        if level != "L1":
            assert all(name in construct for name in finished.get(number, []))
        with_stack = {name for names, _ in stack.values() for name in names}
        assert all(name in with_stack for name in finished.get(number, []))
        leftovers = [path.name for path in step.directory.iterdir() if path.suffix not in (".json", ".log") and path.is_file()]
        assert all(name.startswith(".") for name in leftovers), leftovers
        checked += len(finished.get(number, []))
    assert checked == sum(map(len, finished.values())), "a step is missing"
    return checked


# Eight moments in the default run; the times are spread over a few flushes and steps. Some trainings have the processor to themselves, the
# others wait for their data most of the time, as the tests run together with others.
WAITING = 0.01
MOMENTS = [
    ("SIGKILL", 0.45, 0.0),
    ("outside", 1.3, 0.0),
    ("outside", 2.1, WAITING),
    ("SIGKILL", 1.85, WAITING),
    ("SIGTERM", 1.6, WAITING),
    ("_exit", 1.5, 0.0),
    ("abort", 1.4, WAITING),
    ("SIGINT", 1.7, WAITING),
]


@pytest.mark.parametrize(("way", "after", "pause"), MOMENTS)
def test_ended_at_some_moment(server: Server, tmp_path: Path, way: str, after: float, pause: float) -> None:
    train_until_the_end(server, tmp_path, way, after, pause=pause)
    check(tmp_path)


def test_ended_in_order_without_stop(server: Server, tmp_path: Path) -> None:
    """sys.exit in the middle of a step: nothing at all is lost."""
    train_until_the_end(server, tmp_path, "exit", 0.7)
    assert check(tmp_path, may_lose=False) > 0


@pytest.mark.slow
@pytest.mark.parametrize("index", range(50 - len(MOMENTS)))
def test_ended_at_random_moments(server: Server, tmp_path: Path, index: int) -> None:
    """Fifty with those of the default run."""
    random_ = random.Random(index)
    way = random_.choice(["outside", "outside", "SIGKILL", "SIGTERM", "_exit", "abort", "SIGINT"])
    level, task = random_.choice(
        [("mix", "statistics"), ("mix", "statistics"), ("L0", "statistics"), ("L1", "statistics"), ("mix", "tensor")]
    )
    train_until_the_end(server, tmp_path, way, random_.uniform(0.0, 2.5), level, task, random_.choice([0.0, WAITING]))
    check(tmp_path, level)


@pytest.mark.parametrize("way", ["SIGKILL", "_exit"])
def test_tensor_files_of_an_ended_training(server: Server, tmp_path: Path, way: str) -> None:
    """All are complete but those that the pool's threads had in hand, and a reader says so of these."""
    import torch

    train_until_the_end(server, tmp_path, way, 1.2, "mix", "tensor")
    check(tmp_path)
    run = Run(tmp_path / "dump")
    paths = [path for number in run.steps for path in sorted((run.step(number).directory / "dump_tensor_data").glob("*.pt"))]
    assert len(paths) > 20
    torn = [path for path in paths if not path.stat().st_size]
    assert len(torn) <= 2
    for path in torn:
        with pytest.raises(DumpFormatError):
            tensor_file.read(path)
    complete = [path for path in paths if path not in torn]
    for path in random.Random(1).sample(complete, min(100, len(complete))):
        torch.load(path, weights_only=True)


# --- the disk -------------------------------------------------------------------------------------------------------------------------
def run_script(server: Server, directory: Path, source: str) -> Ended:
    """Run a few lines; `DUMP` is where to record, `train()` does one iteration and gives its loss."""
    script = textwrap.dedent(
        f"""
        import os, shutil, signal, sys, threading, time
        import torch, torch.nn as nn
        from msprobe.pytorch import PrecisionDebugger
        torch.manual_seed(0)
        DUMP = {str(directory / "dump")!r}
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        def train():
            loss = model(torch.ones(4, 16)).pow(2).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
            return loss.item()
        """
    ) + textwrap.dedent(source)
    return server.run(directory, ["-c", script])


def warnings_of(errors: str) -> tuple[list[str], list[str]]:
    """Those while the training ran, and those that tell at the end of a step what it lacks.

    Not the one about a window that is open over several iterations, as it is here.
    """
    lines = [line for line in errors.splitlines() if "[WARNING]" in line and "or they are compared as one" not in line]
    closing = [line for line in lines if "dump.json of step" in line]
    return [line for line in lines if line not in closing], closing


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_full_disk(server: Server, tmp_path: Path, task: str) -> None:
    """RLIMIT_FSIZE stands for it: no file grows beyond 20 kB."""
    done = run_script(
        server,
        tmp_path,
        f"""
        import resource
        debugger = PrecisionDebugger(task={task!r}, dump_path=DUMP, level="mix")
        plain = [train() for _ in range(3)]
        debugger.start(model)
        first = train()
        time.sleep(0.6)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        losses = [first]
        for _ in range(40):
            losses.append(train()); time.sleep(0.02)
        debugger.stop(); debugger.step()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        debugger.start(model); losses.append(train()); debugger.stop(); debugger.step()
        assert losses == sorted(losses, reverse=True) and len(losses) == 42
        print("trained")
        """,
    )
    assert done.status == 0 and done.out == "trained\n", done.err
    assert "Traceback" not in done.err
    warnings, at_the_end = warnings_of(done.err)
    assert len(warnings) == 1 and str(tmp_path / "dump") in warnings[0], warnings
    assert len(at_the_end) <= 1 and all("step 0" in line and "File too large" in line for line in at_the_end)
    (closing,) = [line for line in done.err.splitlines() if "[step 0]" in line]
    lost = re.search(r"not recorded: (\d+)", closing)
    assert lost is not None and int(lost.group(1)) > 0, closing
    run = Run(tmp_path / "dump")
    first = run.step(0)
    assert "Module.0.Linear.forward.0" in first.data and first.construct and first.stack is not None
    second = run.step(1)
    assert "Module.0.Linear.backward.0" in second.data or "Module.0.Linear.forward.0" in second.data
    (closing,) = [line for line in done.err.splitlines() if "[step 1]" in line]
    assert "not recorded" not in closing


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_dump_directory_deleted_during_the_run(server: Server, tmp_path: Path, task: str) -> None:
    done = run_script(
        server,
        tmp_path,
        f"""
        debugger = PrecisionDebugger(task={task!r}, dump_path=DUMP, level="mix")
        debugger.start(model)
        losses = []
        for i in range(40):
            losses.append(train()); time.sleep(0.02)
            if i == 30:
                time.sleep(1.0)
                shutil.rmtree(DUMP)
        debugger.stop(); debugger.step()
        debugger.start(model); losses.append(train()); debugger.stop(); debugger.step()
        assert losses == sorted(losses, reverse=True) and len(losses) == 41
        print("trained")
        """,
    )
    assert done.status == 0 and done.out == "trained\n", done.err
    assert "Traceback" not in done.err
    warnings, at_the_end = warnings_of(done.err)
    assert len(at_the_end) <= 1 and all("step 0" in line and "removed" in line for line in at_the_end)
    assert 1 <= len(warnings) <= (2 if task == "tensor" else 1), warnings
    (closing,) = [line for line in done.err.splitlines() if "[step 0]" in line]
    lost = re.search(r"not recorded: (\d+)", closing)
    assert lost is not None and int(lost.group(1)) > 100, closing
    run = Run(tmp_path / "dump")
    assert "Module.0.Linear.forward.39" in run.step(0).data
    assert "Module.0.Linear.forward.0" in run.step(1).data


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir(mode=0o500)
    done = run_script(
        server,
        tmp_path,
        """
        debugger = PrecisionDebugger(task="statistics", dump_path=DUMP, level="mix")
        try:
            debugger.start(model)
        except Exception as error:
            assert "\\n" not in str(error)
        train()
        debugger.stop(); debugger.step()
        print("trained")
        """,
    )
    assert done.out == "trained\n" and "Traceback" not in done.err, done.err


def test_a_second_interrupt_while_a_step_is_closed(server: Server, tmp_path: Path) -> None:
    """Ctrl-C twice: the first ends the training, the second comes while the files are completed."""
    done = run_script(
        server,
        tmp_path,
        """
        debugger = PrecisionDebugger(task="tensor", dump_path=DUMP, level="mix")
        debugger.start(model)
        for _ in range(30):
            train()
        timer = threading.Timer(0.002, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start(); debugger.stop(); debugger.step(); time.sleep(0.2)
        except KeyboardInterrupt:
            print("interrupted")
        """,
    )
    assert done.status == 0 and done.out == "interrupted\n", done.err
    assert "Module.0.Linear.forward.29" in Run(tmp_path / "dump").step(0).data


# --- memory ---------------------------------------------------------------------------------------------------------------------------
def memory_after(server: Server, directory: Path, source: str) -> list[int]:
    """Resident kilobytes that the script prints."""
    done = run_script(
        server,
        directory,
        """
        def resident():
            import gc; gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
        """
        + source,
    )
    assert done.status == 0, done.err
    return [int(line) for line in done.out.split()]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize("level", ["mix"])
def test_memory_stays_flat(server: Server, tmp_path: Path, level: str) -> None:
    """From step 20 to step 200 at most 2 MB more."""
    at_20, at_200 = memory_after(
        server,
        tmp_path,
        f"""
        debugger = PrecisionDebugger(task="statistics", dump_path=DUMP, level={level!r})
        for step in range(200):
            debugger.start(model); train(); train(); debugger.stop(); debugger.step()
            shutil.rmtree(os.path.join(DUMP, f"step{{step}}"))
            if step in (19, 199):
                print(resident())
        """,
    )
    assert at_200 - at_20 <= 2048, f"{at_200 - at_20} kB"
