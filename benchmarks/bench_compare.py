"""How long `msprobe compare` takes, as a user would see it: a process of its own each time, start included.

    python benchmarks/bench_compare.py [--quick] [--repeat N] [--only WORD]

For each case the best wall and CPU seconds of N runs and the largest peak of memory; beside them, where MSPROBE_REFERENCE_PYTHON names an
interpreter with the existing tool, the same of that tool in the same round. Results go to benchmarks/results/. Nothing is downloaded;
everything is written to a temporary directory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Tool, machine, said_load, save, tools

SOURCE = Path(__file__).resolve().parents[1] / "src"
FRAMES = [f"File /home/me/project/module_{i}.py, line {100 + i}, in forward, \n y = self.layer_{i}(x)" for i in range(12)]
_CALLS_PER_STACK = 100


def tensor(value: float, name: str | None = None) -> dict[str, Any]:
    """A record of a tensor."""
    record: dict[str, Any] = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [4, 128, 256],
        "Max": value * 3.0,
        "Min": -value * 2.9,
        "Mean": value * 0.013,
        "Norm": value * 361.7,
        "requires_grad": True,
    }
    return record if name is None else {**record, "data_name": name}


def write_statistics(directory: Path, rows: int, noise: float) -> None:
    """A `mix` dump of `rows` rows: five to a call, one of them a plain number. A hundred calls share a line of code, as layers do."""
    directory.mkdir(parents=True)
    data: dict[str, Any] = {}
    construct: dict[str, Any] = {}
    stack: dict[str, Any] = {}
    for call in range(rows // 5):
        value = (1.0 + call * 1e-4) * (1.0 + noise)
        name = f"Functional.linear.{call}.forward"
        data[name] = {
            "input_args": [tensor(value), tensor(value * 0.5), tensor(value * 0.25)],
            "input_kwargs": {"scale": {"type": "float", "value": 0.5}},
            "output": [tensor(value * 1.7)],
        }
        module = f"Module.layers.{call}.Linear.forward.0"
        construct[name] = module
        construct[module] = None
        number = call // _CALLS_PER_STACK
        stack.setdefault(str(number), [[], [*FRAMES, f"File /home/me/train.py, line {number}, in main, \n y = model(x)"]])[0].append(name)
    content = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": data}
    for file, value in (("dump.json", content), ("construct.json", construct), ("stack.json", stack)):
        (directory / file).write_text(json.dumps(value, indent=1))


def write_tensors(directory: Path, count: int, elements: int, noise: float) -> None:
    """A tensor dump of `count` tensors, two to a call (one: an output only)."""
    sys.path.insert(0, str(SOURCE))
    import numpy as np

    from msprobe import numerics
    from msprobe.format import tensor_file

    folder = directory / "dump_tensor_data"
    folder.mkdir(parents=True)
    base = np.random.default_rng(0).standard_normal(elements, dtype=np.float32) * np.float32(1 + noise)
    # The true ones: a file that contradicts its dump.json is not compared.
    statistics = dict(zip(("Max", "Min", "Mean", "Norm"), numerics.summarize_array(base), strict=True))
    data: dict[str, Any] = {}
    for call in range(max(1, count // 2)):
        name = f"Torch.op.{call}.forward"
        files = [f"{name}.{role}.0.pt" for role in ("output", "input")[:count]]
        for file in files:
            tensor_file.write(str(folder / file), "float32", base.shape, base.tobytes())
        records = [{**tensor(1.0, file), **statistics, "shape": [elements]} for file in files]
        data[name] = {"input_args": records[1:], "input_kwargs": {}, "output": records[:1]}
    content = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(folder), "data": data}
    (directory / "dump.json").write_text(json.dumps(content, indent=1))
    (directory / "stack.json").write_text("{}")


@dataclass(frozen=True)
class Case:
    """One comparison: `write(directory, noise)` makes a side; the target is made with `noise`, the golden side with 0."""

    name: str
    write: Callable[[Path, float], None]
    noise: float
    ranks: int = 0
    slow: bool = False
    theirs: bool = True


def statistics_case(rows: int, noise: float, slow: bool = False, theirs: bool = True) -> Case:
    """Statistics rows, all equal or all different in their last digits."""
    word = "all different" if noise else "equal"
    return Case(f"{rows} rows, {word}", lambda at, by: write_statistics(at, rows, by), noise, slow=slow, theirs=theirs)


CASES = (
    statistics_case(10, 0.0),
    Case("1268 tensors, 35 MB a side", lambda at, by: write_tensors(at, 1268, 6900, by), 1e-6),
    Case("one tensor of 64 MB", lambda at, by: write_tensors(at, 1, 1 << 24, by), 1e-6),
    statistics_case(20_000, 1e-7),
    statistics_case(200_000, 0.0, slow=True),
    statistics_case(200_000, 1e-7, slow=True),
    Case("4 ranks of 50000 rows", lambda at, by: write_statistics(at, 50_000, by), 1e-7, ranks=4, slow=True, theirs=False),
    statistics_case(1_000_000, 1e-7, slow=True, theirs=False),
)


def run(tool: Tool, target: Path, golden: Path, output: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak megabytes of one comparison, children included."""
    command = [*tool.command, "compare", "-tp", str(target), "-gp", str(golden), "-o", str(output)]
    start = time.perf_counter()
    process = subprocess.Popen(command, env=tool.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{tool.name}: exit code {process.returncode} of {' '.join(command)}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(case: Case, root: Path, repeat: int) -> dict[str, Any]:
    """Prints and returns the numbers of one case."""
    result: dict[str, Any] = {"case": case.name}
    sides = [root / side for side in ("target", "golden")]
    for side, noise in zip(sides, (case.noise, 0.0), strict=True):
        for rank in range(case.ranks or 1):
            # In a process of its own: the peak of memory that a process had counts for those it starts.
            at = side / f"rank{rank}" if case.ranks else side
            writer = multiprocessing.get_context("fork").Process(target=case.write, args=(at, noise))
            writer.start()
            writer.join()
    paths = sides if case.ranks else [side / "dump.json" for side in sides]
    for tool in tools():
        if tool.name == "theirs" and not case.theirs:
            continue
        runs = [run(tool, paths[0], paths[1], root / "output") for _ in range(repeat if tool.name == "ours" else 1)]
        wall, cpu, peak = min(r[0] for r in runs), min(r[1] for r in runs), max(r[2] for r in runs)
        result[tool.name] = {"wall": round(wall, 3), "cpu": round(cpu, 3), "peak_mb": round(peak)}
        print(f"{case.name:<28} {tool.name:<7} {wall:8.3f} s wall {cpu:8.3f} s CPU {peak:7.0f} MB", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than a few seconds")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of ours for each case, the best counts (default 3)")
    parser.add_argument("--only", default="", metavar="WORD", help="only the cases whose name has this in it")
    options = parser.parse_args()
    print(said_load())
    results = []
    for case in CASES:
        if (options.quick and case.slow) or options.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            results.append(measure(case, Path(temporary), options.repeat))
    print(said_load())
    print(save("compare", {"machine": machine(), "results": results}))


if __name__ == "__main__":
    main()
