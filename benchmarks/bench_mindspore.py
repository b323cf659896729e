"""What recording a step of a MindSpore net costs: ten Dense layers with ReLU between them, forward and backward, PyNative on the CPU.

    python benchmarks/bench_mindspore.py [--steps 30] [--width 64]

Run it with an interpreter that has MindSpore and this repository's src on PYTHONPATH. Rounds of all kinds alternate, so that what else the
machine does meanwhile falls on all of them; the median step of each is shown.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from msprobe.mindspore import PrecisionDebugger

KINDS = [("L0", "statistics"), ("L1", "statistics"), ("mix", "statistics"), ("L0", "tensor")]


def net_of(width: int) -> Any:
    """Ten layers."""
    ms.set_seed(0)
    layers = [layer for _ in range(9) for layer in (nn.Dense(width, width), nn.ReLU())]
    return nn.SequentialCell([*layers, nn.Dense(width, width)])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    logging.getLogger("msprobe").setLevel(logging.ERROR)
    Tensor(np.ones(1, np.float32)) * 2
    net = net_of(options.width)
    loss = nn.MSELoss()
    x, y = (Tensor(np.random.RandomState(n).randn(32, options.width).astype(np.float32)) for n in (0, 1))
    step = ms.value_and_grad(lambda x, y: loss(net(x), y), None, net.trainable_params())
    root = tempfile.mkdtemp()

    def one() -> None:
        value, gradients = step(x, y)
        value.asnumpy()
        gradients[-1].asnumpy()

    for _ in range(5):
        one()
    times: dict[str, list[float]] = {"plain": []}
    debuggers: dict[str, tuple[Any, Any]] = {}
    for level, task in KINDS:
        PrecisionDebugger._instance = PrecisionDebugger._session = None
        made = PrecisionDebugger(level=level, task=task, dump_path=f"{root}/{level}_{task}")
        debuggers[f"{level} {task}"] = (made, PrecisionDebugger._session)
    for _ in range(options.steps):
        began = time.perf_counter()
        one()
        times["plain"].append(time.perf_counter() - began)
        for name, (made, session) in debuggers.items():
            PrecisionDebugger._instance, PrecisionDebugger._session = made, session
            began = time.perf_counter()
            made.start(net)
            one()
            made.stop()
            made.step()
            times.setdefault(name, []).append(time.perf_counter() - began)
    plain = statistics.median(times["plain"][2:])
    print(f"plain            {plain * 1e3:8.2f} ms")
    for name in debuggers:
        taken = statistics.median(times[name][2:])
        print(f"{name:<16} {taken * 1e3:8.2f} ms  (+{(taken - plain) * 1e3:.2f} ms, x{taken / plain:.2f})")


if __name__ == "__main__":
    main()
