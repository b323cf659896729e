"""What the command line costs: CPU time of `msprobe --help`, and of `msprobe compare` by the number of rows.

usage: python bench_startup.py [--rows 10,20000,200000] [--rounds 3]

The two dumps are made on the spot: statistics of L1 calls with an input and an output each, all values equal but one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import Tool, machine, said_load, save, tools

FRAMES = ["File /home/user/train.py, line 42, in forward, \n x = self.fc(x)", "File /home/user/train.py, line 80, in <module>, \n main()"]


def tensor(value: float) -> dict[str, Any]:
    """A record of a tensor."""
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [8, 64],
        "Max": 2.5 + value,
        "Min": -2.25 - value,
        "Mean": 0.125 * value,
        "Norm": 22.0 + value,
        "requires_grad": True,
    }


def make_dump(directory: Path, rows: int, other: bool) -> Path:
    """A dump with `rows` values of statistics; with `other` the last one differs. Gives its dump.json."""
    directory.mkdir()
    names = [f"Torch.matmul.{i}.forward" for i in range(rows // 2)]
    data = {n: {"input_args": [tensor(i % 97)], "input_kwargs": {}, "output": [tensor(i % 89)]} for i, n in enumerate(names)}
    if other:
        data[names[-1]]["output"] = [tensor(1000.0)]
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}
    (directory / "dump.json").write_text(json.dumps(head, indent=1))
    (directory / "stack.json").write_text(json.dumps({"0": [names, FRAMES]}, indent=1))
    (directory / "construct.json").write_text("{}")
    return directory / "dump.json"


def timed(tool: Tool, arguments: list[str], allowed: tuple[int, ...]) -> tuple[float, float]:
    """CPU and wall seconds of one command.

    Raises:
        SystemExit: it ended with a code that is not allowed.
    """
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen([*tool.command, *arguments], env=tool.environment(), stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in allowed:
            output.seek(0)
            sys.exit(f"{' '.join([*tool.command, *arguments])} ended with {process.returncode}:\n{output.read().decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, wall


def main() -> None:
    """Parse arguments, measure, save."""
    parser = argparse.ArgumentParser(description="What the command line costs.")
    parser.add_argument("--rows", default="10,20000,200000")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(said_load())
    results = []
    with tempfile.TemporaryDirectory() as root:
        cases: list[tuple[str, list[str]]] = [("--help", ["--help"])]
        for rows in map(int, options.rows.split(",")):
            target = make_dump(Path(root, f"target{rows}"), rows, other=True)
            golden = make_dump(Path(root, f"golden{rows}"), rows, other=False)
            cases.append((f"compare, {rows} rows", ["compare", "-tp", str(target), "-gp", str(golden), "-o", f"{root}/out"]))
        for title, arguments in cases:
            for tool in tools():
                allowed = (0, 1) if tool.name == "ours" and "compare" in title else (0,)  # 1: a difference was found
                found = [timed(tool, arguments, allowed) for _ in range(options.rounds)]
                cpu, wall = (statistics.median(column) for column in zip(*found, strict=True))
                results.append({"case": title, "tool": tool.name, "cpu_s": round(cpu, 3), "wall_s": round(wall, 3)})
                print(f"{title:24} {tool.name:6} {cpu:8.2f} s CPU {wall:8.2f} s wall", flush=True)
    print(f"saved as {save('startup', {'machine': machine(), 'rows': results})}")


if __name__ == "__main__":
    main()
