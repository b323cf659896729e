"""What writing and reading a dump costs: `python benchmarks/bench_writer.py [directory]`.

Processor time of the calling thread where nothing else is said, so that other work on the machine matters little; medians.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from msprobe.format import reader, tensor_file
from msprobe.writer import StepWriter, TensorPool

# A training step of the smallest size in the step benchmark: calls forward and backward, two tensor records each.
ENTRIES = 650
STACKS = 60


def tensor(value: float) -> dict[str, Any]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [1, 3, 64],
        "Max": value,
        "Min": -1.6094847917556763,
        "Mean": -0.00019938249897677451,
        "Norm": 3.536414623260498,
        "requires_grad": True,
    }


def step_content() -> tuple[list[tuple[str, dict[str, Any]]], list[list[str]]]:
    chance = random.Random(0)
    entries = [
        (f"Functional.linear.{i}.forward", {"input_args": [tensor(chance.random()), None], "input_kwargs": {}, "output": [tensor(i)]})
        for i in range(ENTRIES)
    ]
    frames = [
        f"File /venv/torch/nn/modules/module.py, line {i}, in _call_impl, \n return self._call_impl(*args, **kwargs)" for i in range(200)
    ]
    return entries, [[chance.choice(frames) for _ in range(25)] for _ in range(STACKS)]


def median(work: Callable[[], Any], repeat: int, clock: Callable[[], float] = time.thread_time) -> float:
    times = []
    for _ in range(repeat):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def show(what: str, seconds: float, unit: str = "ms", note: str = "") -> None:
    factor = {"ms": 1e3, "µs": 1e6, "s": 1.0}[unit]
    print(f"{what:58} {seconds * factor:9.3f} {unit}  {note}")


def steps(root: str, repeat: int) -> None:
    entries, stacks = step_content()
    phases: dict[str, list[float]] = {"open": [], "add": [], "close": [], "open, few": [], "close, few": []}
    size = 0
    for few in (False, True):
        for step in range(repeat):
            marks = [time.thread_time()]
            writer = StepWriter(f"{root}/step{step}{few}/proc1", task="statistics", level="mix")
            marks.append(time.thread_time())
            for number, (name, data) in enumerate(entries[:3] if few else entries):
                writer.add(name, data, True)
                writer.add_call(name, None)
                writer.add_stack(name, number % STACKS, stacks[number % STACKS])
            marks.append(time.thread_time())
            size = max(size, writer.close().bytes_written)
            marks.append(time.thread_time())
            names = ("open, few", None, "close, few") if few else ("open", "add", "close")
            for name, start, end in zip(names, marks, marks[1:], strict=False):
                if name:
                    phases[name].append(end - start)
    show("StepWriter open", statistics.median(phases["open"]))
    show(f"StepWriter add + add_call + add_stack, {ENTRIES} times", statistics.median(phases["add"]))
    show("StepWriter close", statistics.median(phases["close"]), note=f"{size / 1e6:.2f} MB")
    show("StepWriter open + close, 3 entries", statistics.median(phases["open, few"]) + statistics.median(phases["close, few"]))


def growth(root: str) -> None:
    """The last flush of a long step costs what the first does."""
    entries, _ = step_content()
    writer = StepWriter(f"{root}/long", task="statistics", level="mix")
    costs = []
    for flush in range(60):
        for name, data in entries:
            writer.add(f"{name}.{flush}", data, True)
        start = time.thread_time()
        writer.flush()
        costs.append(time.thread_time() - start)
    show("flush of 650 entries: first ten", statistics.median(costs[1:11]))
    show("flush of 650 entries: last ten", statistics.median(costs[-10:]), note=f"file of {writer.close().bytes_written / 1e6:.0f} MB")


def tensors(root: str, repeat: int) -> None:
    data = [os.urandom(2048) for _ in range(400)]
    count = iter(range(10**9))
    show("tensor_file.write, 2 KB", median(lambda: tensor_file.write(f"{root}/{next(count)}.pt", "float32", (8, 64), data[0]), 400), "µs")
    show("tensor_file.read, 2 KB", median(lambda: tensor_file.read(f"{root}/0.pt"), 400), "µs")
    big = os.urandom(64 << 20)
    show(
        "tensor_file.write, 64 MB",
        median(lambda: tensor_file.write(f"{root}/big.pt", "float32", (1 << 24,), big), 3, time.perf_counter),
        "ms",
        "wall",
    )
    show("tensor_file.read, 64 MB", median(lambda: tensor_file.read(f"{root}/big.pt"), 3, time.perf_counter), "ms", "wall")
    pool = TensorPool()
    submits, walls = [], []
    for step in range(repeat):
        os.mkdir(f"{root}/tensors{step}")
        wall, start = time.perf_counter(), time.thread_time()
        for number in range(1271):
            pool.submit(f"{root}/tensors{step}/{number}.pt", "float32", (8, 64), data[number % 400])
        submits.append(time.thread_time() - start)
        pool.drain()
        walls.append(time.perf_counter() - wall)
    show("TensorPool, 1271 files of 400 contents: submit", statistics.median(submits))
    show("TensorPool, 1271 files of 400 contents: until drained", statistics.median(walls), note="wall")


def reading(root: str) -> None:
    entries, _ = step_content()
    data = {f"{name}.{copy}": record for copy in range(125) for name, record in entries}
    path = f"{root}/dump.json"
    Path(path).write_text(
        json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}, indent=1)
    )
    show("read_dump", median(lambda: reader.read_dump(path), 3), "s", f"{os.path.getsize(path) / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", help="where to write (default: the temporary directory)")
    parser.add_argument("--repeat", type=int, default=30)
    options = parser.parse_args()
    root = tempfile.mkdtemp(dir=options.directory)
    try:
        steps(root, options.repeat)
        growth(root)
        tensors(root, max(3, options.repeat // 5))
        reading(root)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
