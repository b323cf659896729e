"""What one call of save() costs: where it records nothing, and where it records a small and a large tensor.

usage: python bench_save.py [--rounds 7]

Each case runs in a process of its own; the best round counts. `base` is a function of the same signature that returns at once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Tool, machine, said_load, save, tools

LIMIT = 2.0
"""Microseconds that a call which records nothing may take."""
NOTHING = ("step filtered out", "rank filtered out", "another level", "dump_enable false")
CASES = (*NOTHING, "small, no gradient", "small and gradient", "small, tensor task", "1M elements", "1M elements, tensor task")


def configuration(case: str, directory: str) -> dict[str, Any]:
    """The config.json of a case."""
    task = "tensor" if "tensor task" in case else "statistics"
    config: dict[str, Any] = {"task": task, "level": "debug", "dump_path": f"{directory}/dump"}
    more: dict[str, dict[str, Any]] = {
        "step filtered out": {"step": [99]},
        "rank filtered out": {"rank": [99]},
        "another level": {"level": "L1"},
        "dump_enable false": {"dump_enable": False},
    }
    return config | more.get(case, {})


def best(call: Callable[[], None], count: int, rounds: int, end: Callable[[], None] = lambda: None) -> float:
    """Microseconds per call, the best round."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - began) / count * 1e6)
        end()
    return min(times)


def measure(case: str, rounds: int) -> None:
    """Run one case in this process and print its microseconds."""
    import torch

    from msprobe.pytorch import PrecisionDebugger

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "config.json")
        path.write_text(json.dumps(configuration(case, directory)))
        debugger = PrecisionDebugger(config_path=str(path))
        large = "1M" in case
        x = torch.randn(1 << 20 if large else 64, requires_grad="gradient" in case and "no" not in case)
        y = x * 2
        gradient = "and gradient" in case
        count = 100_000 if case in NOTHING else 20 if large else 1000

        def nothing(variable: Any, name: str, save_backward: bool = True) -> None:
            pass

        def call() -> None:
            debugger.save(y, "y", gradient)

        def base() -> None:
            nothing(y, "y", gradient)

        found = best(call, count, rounds, debugger.step if case not in NOTHING else lambda: None)
        print(json.dumps({"us": found, "base": best(base, count, rounds)}))


def run(tool: Tool, case: str, rounds: int) -> dict[str, float]:
    """One case in a process of its own."""
    command = [tool.python, __file__, "--case", case, "--rounds", str(rounds)]
    environment = tool.environment({"MSPROBE_LOG_LEVEL": "4"})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case}: {done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Run all cases and print a table; exit code 1 where a call that records nothing takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--case", choices=CASES)
    arguments = parser.parse_args()
    if arguments.case:
        measure(arguments.case, arguments.rounds)
        return
    print(said_load())
    results = {}
    for case in CASES:
        results[case] = found = run(tools()[0], case, arguments.rounds)
        print(f"{case:<28} {found['us']:>10.2f} us   (a call of an empty function: {found['base']:.2f} us)")
    print(f"written to {save('save', {'machine': machine(), 'microseconds': results})}")
    slow = [case for case in NOTHING if results[case]["us"] > LIMIT]
    if slow:
        sys.exit(f"over {LIMIT} us: {', '.join(slow)}")


if __name__ == "__main__":
    main()
