"""What recording a step of a MindSpore net costs: ten Dense layers with ReLU between them, forward and backward, on the CPU.

    python benchmarks/bench_mindspore.py [--steps 30] [--width 64] [--graph]

Run it with an interpreter that has MindSpore and this repository's src on PYTHONPATH. In PyNative, rounds of all kinds alternate, so that
what else the machine does meanwhile falls on all of them; the median step of each is shown. With `--graph` (graph mode) each kind is a
graph of its own: shown are its first step, which compiles it, the median of those that are recorded, and of those that are not, where the
taps are idle.
"""

from __future__ import annotations

import argparse
import json
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


def with_loss(net: Any) -> Any:
    """The function that is differentiated."""
    loss = nn.MSELoss()

    def forward(x: Any, y: Any) -> Any:
        return loss(net(x), y)

    return forward


def graph(steps: int, width: int, root: str) -> None:
    """Measure compiled graphs, and print a table."""
    ms.set_context(mode=ms.GRAPH_MODE)
    x, y = (Tensor(np.random.RandomState(n).randn(32, width).astype(np.float32)) for n in (0, 1))
    print(f"{'':<24} {'first step':>10} {'recorded':>12} {'idle':>12}")
    kinds: list[tuple[str, str, str]] = [("plain", "", ""), ("statistics, forward", "statistics", "forward")]
    kinds += [("statistics", "statistics", "all"), ("tensor", "tensor", "all"), ("plain again", "", "")]
    for name, task, mode in kinds:
        net = net_of(width)
        step = ms.value_and_grad(with_loss(net), None, net.trainable_params())
        debugger = None
        if task:
            PrecisionDebugger._instance = PrecisionDebugger._session = None
            path = f"{root}/{name}.json"
            settings = {"task": task, "dump_path": f"{root}/{name}", "level": "L0", "step": [f"0-{steps}"], task: {"data_mode": [mode]}}
            with open(path, "w", encoding="utf-8") as file:
                json.dump(settings, file)
            debugger = PrecisionDebugger(path)
        times = []
        for _ in range(2 * steps):
            began = time.perf_counter()
            if debugger is not None:
                debugger.start(net)
            value, gradients = step(x, y)
            value.asnumpy()
            gradients[-1].asnumpy()
            if debugger is not None:
                debugger.stop()
                debugger.step()
            times.append(time.perf_counter() - began)
        recorded, idle = (statistics.median(part) * 1e3 for part in (times[1:steps], times[steps + 1 :]))
        print(f"{name:<24} {times[0]:>8.2f} s {recorded:>9.2f} ms {idle:>9.2f} ms")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--graph", action="store_true", help="graph mode")
    options = parser.parse_args()
    logging.getLogger("msprobe").setLevel(logging.ERROR)
    Tensor(np.ones(1, np.float32)) * 2
    if options.graph:
        graph(options.steps, options.width, tempfile.mkdtemp())
        return
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
