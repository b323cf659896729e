"""How long `msprobe compare` takes, as a user would see it: a process of its own each time.

    python benchmarks/bench_compare.py [--quick] [--tensors N]

Prints wall and CPU seconds and peak memory of `msprobe --help`, of comparisons of 10, 20,000 and 200,000 rows of statistics, of as many
rows that all differ in their last digits, and of tensor dumps. Nothing is downloaded; everything is written to a temporary directory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
FRAMES = [f"File /home/me/project/module_{i}.py, line {100 + i}, in forward, \n y = self.layer_{i}(x)" for i in range(12)]


def tensor(value: float, name: str | None = None) -> dict[str, Any]:
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
    """A `mix` dump of `rows` rows: five to a call."""
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
        stack[str(call)] = [[name], FRAMES]
    content = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": data}
    for file, value in (("dump.json", content), ("construct.json", construct), ("stack.json", stack)):
        (directory / file).write_text(json.dumps(value, indent=1))


def write_tensors(directory: Path, count: int, elements: int, noise: float) -> None:
    """A tensor dump of `count` tensors, two to a call."""
    sys.path.insert(0, str(SOURCE))
    import numpy as np

    from msprobe.format import tensor_file

    folder = directory / "dump_tensor_data"
    folder.mkdir(parents=True)
    base = np.random.default_rng(0).standard_normal(elements, dtype=np.float32) * np.float32(1 + noise)
    data: dict[str, Any] = {}
    for call in range(count // 2):
        name = f"Torch.op.{call}.forward"
        files = [f"{name}.{role}.0.pt" for role in ("input", "output")]
        for file in files:
            tensor_file.write(str(folder / file), "float32", base.shape, base.tobytes())
        records = [{**tensor(1.0, file), "shape": [elements]} for file in files]
        data[name] = {"input_args": [records[0]], "input_kwargs": {}, "output": [records[1]]}
    content = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(folder), "data": data}
    (directory / "dump.json").write_text(json.dumps(content, indent=1))
    (directory / "stack.json").write_text("{}")


def measure(label: str, *arguments: str, repeat: int = 3) -> None:
    """Prints the best of `repeat` runs."""
    best: tuple[float, float] = (float("inf"), float("inf"))
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(repeat):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "msprobe", *arguments], env=environment, stdout=subprocess.DEVNULL, check=False)
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{label}: exit code {done.returncode}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best, (wall, cpu))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{label:<44} {best[0]:7.3f} s wall {best[1]:7.3f} s CPU   peak so far {peak:6.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than a few seconds")
    parser.add_argument("--tensors", type=int, default=1268, help="tensors per side")
    options = parser.parse_args()
    measure("msprobe --help", "--help")
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        sizes = (10, 20_000) if options.quick else (10, 20_000, 200_000)
        for rows in sizes:
            for side, noise in (("a", 0.0), ("b", 0.0), ("c", 1e-7)):
                write_statistics(root / f"{rows}{side}", rows, noise)
            for word, side in (("equal", "b"), ("all different", "c")):
                paths = ["-tp", str(root / f"{rows}a"), "-gp", str(root / f"{rows}{side}"), "-o", str(root / "out")]
                measure(f"{rows} rows of statistics, {word}", "compare", *paths, repeat=3 if rows < 100_000 else 1)
        shapes = [("small", options.tensors, 6_900)] if options.quick else [("small", options.tensors, 6_900), ("large", 8, 1 << 24)]
        for word, count, elements in shapes:
            for side, noise in (("a", 0.0), ("b", 1e-6)):
                write_tensors(root / f"{word}{side}", count, elements, noise)
            paths = ["-tp", str(root / f"{word}a"), "-gp", str(root / f"{word}b"), "-o", str(root / "out")]
            measure(f"{count} {word} tensors of {elements} float32", "compare", *paths, repeat=1 if word == "large" else 3)


if __name__ == "__main__":
    main()
