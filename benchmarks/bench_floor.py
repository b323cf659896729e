"""What watching costs whoever watches: the least that any recorder written in Python adds to a step at level L0.

usage: python bench_floor.py [--sizes s] [--rounds 200]

Each kind of step adds to the one before it, in one process, in alternation; the lower quartile counts:

- `hooks`: hooks on all modules, that look at the tensors and do nothing;
- `gradients`: observers, that do nothing, at both ends of each module in the autograd graph and on each parameter;
- `statistics`: our kernels on each of these tensors, the result thrown away;
- `files`: four files with as much text as a step has, in a new directory that appears at once.

Not in it: names, call stacks, which nodes of the graph belong to a module, JSON, and what could go wrong. `recorded` is the whole.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import torch
from common import machine, said_load, save
from torch import nn
from workload import Model, batch, train

from msprobe import numerics
from msprobe.log import logger
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.dump import summaries

KINDS = ("hooks", "gradients", "statistics", "files")
_TEXT = {"dump.json": 110_000, "stack.json": 20_000, "construct.json": 12_000, "meta.json": 900}


class Watcher:
    """Puts on what a kind of step has, and takes it off. `kind`: how many of KINDS."""

    def __init__(self, model: nn.Module, kind: int) -> None:
        self._modules = [module for module in model.modules() if module is not model and not isinstance(module, nn.ModuleList)]
        self._parameters = list(model.parameters())
        self._kind = kind
        self._table = summaries.table(summaries.Holds.STATISTICS)
        self._handles: list[Any] = []
        self.tensors = 0

    def on(self) -> None:
        """Begin a step."""
        self.tensors = 0
        for module in self._modules if self._kind else ():
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after, with_kwargs=True, always_call=True))
        for parameter in self._parameters if self._kind > 1 else ():
            self._handles.append(parameter.register_post_accumulate_grad_hook(lambda p: self._look(p.grad)))

    def off(self) -> None:
        """End it."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _look(self, tensor: Any) -> None:
        self.tensors += 1
        if self._kind > 2:
            numerics.describe(tensor, self._table)

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for value in args:
            self._look(value)

    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor) -> None:
        for parameter in module._parameters.values():
            if parameter is not None:
                self._look(parameter)
        self._look(output)
        for tensor in (output, args[0]) if self._kind > 1 else ():
            if tensor.grad_fn is not None:
                self._handles.append(tensor.grad_fn.register_prehook(self._gradients))

    def _gradients(self, gradients: tuple[Any, ...]) -> None:
        for gradient in gradients:
            if gradient is not None:
                self._look(gradient)


def write_files(directory: str) -> None:
    """As much text as a step has."""
    hidden = os.path.join(os.path.dirname(directory), "." + os.path.basename(directory))
    os.mkdir(hidden)
    for name, size in _TEXT.items():
        with open(os.path.join(hidden, name), "xb", buffering=0) as file:
            file.write(b" " * size)
    os.rename(hidden, directory)


def run(size: str, rounds: int, root: str) -> dict[str, float]:
    """Milliseconds that each kind adds to a plain step."""
    torch.manual_seed(0)
    model = Model(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    debugger = PrecisionDebugger(dump_path=os.path.join(root, f"dump_{size}"), task="statistics", level="L0")
    times: dict[str, list[float]] = {"plain": [], **{kind: [] for kind in KINDS}, "recorded": []}
    watchers = [Watcher(model, kind) for kind in range(len(KINDS) + 1)]
    for number in range(rounds):
        for kind, watcher in zip(("plain", *KINDS), watchers, strict=True):
            ids = batch(size)
            began = time.perf_counter()
            watcher.on()
            train(model, optimizer, ids)
            watcher.off()
            if kind == "files":
                write_files(os.path.join(root, f"{size}{number}"))
            times[kind].append(time.perf_counter() - began)
        ids = batch(size)
        began = time.perf_counter()
        debugger.start(model=model)
        train(model, optimizer, ids)
        debugger.stop()
        debugger.step()
        times["recorded"].append(time.perf_counter() - began)
    quartiles = {kind: 1e3 * sorted(found[3:])[len(found[3:]) // 4] for kind, found in times.items()}
    plain = quartiles.pop("plain")
    return {"plain_ms": plain, "tensors": watchers[-1].tensors, **{kind: found - plain for kind, found in quartiles.items()}}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="s")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    logger.setLevel("WARNING")  # two lines for each step otherwise
    print(said_load())
    rows = []
    with tempfile.TemporaryDirectory() as root:
        for size in arguments.sizes.split(","):
            row = run(size, arguments.rounds, root)
            added = ", ".join(f"{kind} +{row[kind]:.2f}" for kind in (*KINDS, "recorded"))
            print(f"{size}: plain {row['plain_ms']:.2f} ms, {row['tensors']} tensors; added in ms, one upon the other: {added}")
            rows.append({"size": size, **row})
    save("floor", {"machine": machine(), "torch": torch.__version__, "rows": rows})


if __name__ == "__main__":
    main()
