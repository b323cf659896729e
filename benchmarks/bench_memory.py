"""Resident memory while recording: how much it grows from step 20 to step 200.

usage: python bench_memory.py [--steps 200] [--size s]
"""

from __future__ import annotations

import argparse
import tempfile

from bench_step import measure
from common import machine, said_load, save, tools


def main() -> None:
    """Parse arguments, measure, save."""
    parser = argparse.ArgumentParser(description="How much resident memory grows from step 20 to the last.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", default="s")
    arguments = parser.parse_args()
    print(said_load())
    rows = []
    root = tempfile.gettempdir()
    for tool in tools():
        for task, level in (("none", "L0"), ("statistics", "mix")):
            numbers = measure(tool, task, level, "statistics", arguments.size, arguments.steps, root)
            growth = numbers["rss_last_mb"] - numbers["rss_step20_mb"]
            rows.append({"tool": tool.name, "task": task, "level": level, "growth_mb": round(growth, 2), **numbers})
            print(
                f"{tool.name:6} {'plain' if task == 'none' else 'mix statistics':14} step 20: {numbers['rss_step20_mb']:.1f} MB, "
                f"step {arguments.steps}: {numbers['rss_last_mb']:.1f} MB, growth {growth:+.2f} MB",
                flush=True,
            )
    print(f"saved as {save('memory', {'machine': machine(), 'rows': rows})}")


if __name__ == "__main__":
    main()
