"""What `msprobe run` adds to the start of a script: wall and CPU seconds, in turns with the script alone.

usage: python bench_run.py [--rounds 5]

`pass`: a script without torch. `import`: one that only imports torch. `step`: one that makes a training step, recorded at level mix.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPTS = {
    "pass": "pass",
    "import": "import torch",
    "step": (
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 4))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.ones(2, 4)).sum().backward()\noptimizer.step()\n"
    ),
}


def timed(command: list[str], directory: str) -> tuple[float, float]:
    """Wall and CPU seconds of one command.

    Raises:
        SystemExit: it failed.
    """
    source = str(Path(__file__).resolve().parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))}
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description="What msprobe run adds to the start of a script.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        for name, source in SCRIPTS.items():
            Path(directory, "script.py").write_text(source)
            alone = [sys.executable, "script.py"]
            commands = (alone, [sys.executable, "-m", "msprobe", "run", "--", *alone])
            taken: list[list[tuple[float, float]]] = [[], []]
            for _ in range(rounds + 1):  # the first round fills the caches of the file system
                for times, command in zip(taken, commands, strict=True):
                    times.append(timed(command, directory))
            (wall, cpu), (wall_with, cpu_with) = ([statistics.median(values) for values in zip(*times[1:], strict=True)] for times in taken)
            print(f"{name:7} wall {wall:6.3f} s, with {wall_with:6.3f} s (+{wall_with - wall:.3f}); CPU +{cpu_with - cpu:.3f} s")


if __name__ == "__main__":
    main()
