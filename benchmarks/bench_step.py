"""What recording adds to a training step, ours and the reference tool's, in alternation.

usage: python bench_step.py [--sizes s,m,l] [--modes L0,L1,mix,tensor] [--rounds 3] [--drop]

The reference is measured when MSPROBE_REFERENCE_PYTHON names an interpreter that has it. In each round every tool runs a plain step and
then one of each mode, each in a process of its own (step_cost.py); added = with - without in the same round; the median over the rounds
counts. The last column is made of the fastest round of each instead, which a busy machine disturbs less. Results go to
benchmarks/results/ too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from typing import Any

from common import HERE, Tool, machine, said_load, save, tools, torch_version

MODES = {
    "L0": ("statistics", "L0", "statistics"),
    "L1": ("statistics", "L1", "statistics"),
    "mix": ("statistics", "mix", "statistics"),
    "md5": ("statistics", "mix", "md5"),
    "tensor": ("tensor", "mix", "statistics"),
}
STEPS = {"s": 30, "m": 15, "l": 8}


def measure(tool: Tool, task: str, level: str, summary: str, size: str, steps: int, root: str, drop: bool = False) -> dict[str, float]:
    """Run the workload once; gives the numbers of its RES line.

    Its dump stays under `root` until all is measured: ext4 looks long for a place for a new file where many were deleted lately, and
    the later runs would pay for it.

    Raises:
        SystemExit: the run failed.
    """
    directory = tempfile.mkdtemp(dir=root)
    command = [tool.python, str(HERE / "step_cost.py"), task, level, summary, size, str(steps)]
    environment = tool.environment({"DUMP_DIR": directory, "KEEP_DUMP": "1", **({"DROP_STEPS": "1"} if drop else {})})
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RES ")), None)
    if done.returncode or line is None:
        sys.exit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    words = line.split()[5:]
    return {key: float(value) for key, value in zip(words[::2], words[1::2], strict=True)}


def run(sizes: list[str], modes: list[str], rounds: int, steps: int | None, root: str, drop: bool) -> list[dict[str, Any]]:
    """Measure; one row for each size and mode, printed when it is complete."""
    measured = tools()
    rows = []
    heads = "".join(f" {tool.name + ' plain':>13} {tool.name + ' added':>13}" for tool in measured)
    print(f"{'size':4} {'mode':7}{heads}" + ("   ours/theirs   fastest" if len(measured) > 1 else ""))
    for size in sizes:
        plain: dict[str, list[float]] = defaultdict(list)
        added: dict[tuple[str, str], list[float]] = defaultdict(list)
        fastest: dict[tuple[str, str], float] = {}
        output: dict[tuple[str, str], dict[str, float]] = {}
        loads = []
        for _ in range(rounds):
            for tool in measured:
                loads.append(machine()["load"][0])
                without = measure(tool, "none", "L0", "statistics", size, steps or STEPS[size], root, drop)["median_ms"]
                plain[tool.name].append(without)
                for mode in modes:
                    numbers = measure(tool, *MODES[mode], size, steps or STEPS[size], root, drop)
                    added[mode, tool.name].append(numbers["median_ms"] - without)
                    fastest[mode, tool.name] = min(numbers["median_ms"], fastest.get((mode, tool.name), float("inf")))
                    output[mode, tool.name] = numbers
        for mode in modes:
            row: dict[str, Any] = {"size": size, "mode": mode, "load_1min": loads}
            for tool in measured:
                row[tool.name] = {
                    "plain_ms": statistics.median(plain[tool.name]),
                    "added_ms": statistics.median(added[mode, tool.name]),
                    "added_ms_fastest": fastest[mode, tool.name] - min(plain[tool.name]),
                    "added_ms_rounds": [round(value, 2) for value in added[mode, tool.name]],
                    "bytes_per_step": output[mode, tool.name]["bytes_per_step"],
                    "files_per_step": output[mode, tool.name]["files_per_step"],
                }
            if "theirs" in row:
                row["ratio"] = row["ours"]["added_ms"] / row["theirs"]["added_ms"]
                row["ratio_fastest"] = row["ours"]["added_ms_fastest"] / row["theirs"]["added_ms_fastest"]
            rows.append(row)
            cells = "".join(f" {row[t.name]['plain_ms']:10.1f} ms {row[t.name]['added_ms']:10.1f} ms" for t in measured)
            ratios = f"   {row['ratio']:11.3f}   {row['ratio_fastest']:7.3f}" if "ratio" in row else ""
            print(f"{size:4} {mode:7}{cells}{ratios}", flush=True)
    return rows


def main() -> None:
    """Parse arguments, measure, save."""
    parser = argparse.ArgumentParser(description="What recording adds to a training step.")
    parser.add_argument("--sizes", default="s,m,l", help="of s (width 64), m (256), l (768)")
    parser.add_argument("--modes", default=",".join(MODES), help="L0, L1, mix: statistics at that level; md5 and tensor at mix")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="steps in each process; 30, 15 and 8 for s, m and l when not given")
    parser.add_argument("--directory", help="where the dumps go meanwhile; the system's temporary directory when not given")
    parser.add_argument("--drop", action="store_true", help="remove what a step wrote before the next one begins (step_cost.py says why)")
    arguments = parser.parse_args()
    sizes, modes = arguments.sizes.split(","), arguments.modes.split(",")
    if not set(sizes) <= STEPS.keys() or not set(modes) <= MODES.keys():
        parser.error(f"sizes are among {', '.join(STEPS)}, modes among {', '.join(MODES)}")
    if arguments.directory:
        os.makedirs(arguments.directory, exist_ok=True)
    before = machine()
    print(said_load())
    with tempfile.TemporaryDirectory(dir=arguments.directory) as root:
        rows = run(sizes, modes, arguments.rounds, arguments.steps, root, arguments.drop)
    print(said_load())
    versions = {tool.name: torch_version(tool) for tool in tools()}
    content = {"machine": before, "after": machine(), "torch": versions, "dropped": arguments.drop, "rows": rows}
    print(f"saved as {save('step', content)}")


if __name__ == "__main__":
    main()
