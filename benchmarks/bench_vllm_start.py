"""What msprobe's plugin costs a vLLM process that is not recorded: `python benchmarks/bench_vllm_start.py [--python VLLM_PYTHON]`.

vLLM looks its plugins up by their entry points and calls them. Timed is what that takes for ours: importing the plugin and calling it,
without MSPROBE_CONFIG, in fresh interpreters. Exit code 1 where the median is 50 ms or more of processor time.

With --python, the interpreter of an environment that has vLLM, this happens in processes that have imported vLLM.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
LIMIT = 50.0
CHILD = """
import sys, time
{before}
began, used = time.perf_counter(), time.process_time()
from msprobe.integrations.vllm.plugin import register
register()
print((time.perf_counter() - began) * 1e3, (time.process_time() - used) * 1e3, "torch" in sys.modules)
"""


def measured(python: str, before: str, runs: int) -> tuple[float, float]:
    """Median milliseconds, by the clock and of the processor."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    environment.pop("MSPROBE_CONFIG", None)
    found: list[tuple[float, float]] = []
    for _ in range(runs + 1):  # the first one warms the disk up
        command = [python, "-c", CHILD.format(before=before)]
        text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        wall, used, _ = text.split()[-3:]
        found.append((float(wall), float(used)))
    return statistics.median(wall for wall, _ in found[1:]), statistics.median(used for _, used in found[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="interpreter of an environment with vLLM")
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    worst = 0.0
    cases = [("a bare interpreter", sys.executable, "")]
    if options.python:
        cases.append(("a process that has imported vLLM", options.python, "import vllm"))
    for what, python, before in cases:
        wall, used = measured(python, before, options.runs if not before else 3)
        worst = max(worst, used)
        print(f"{what}: {wall:.2f} ms by the clock, {used:.2f} ms of the processor")
    return 1 if worst >= LIMIT else 0


if __name__ == "__main__":
    raise SystemExit(main())
