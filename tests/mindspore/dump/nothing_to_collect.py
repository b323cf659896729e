"""Looks, after a step has ended, at what Python's garbage collector finds of it.

Arguments: the file for the answer.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn, ops
from mindspore_nets import data, filled

from msprobe.mindspore import PrecisionDebugger

SETTINGS = [("L0", "statistics"), ("L1", "statistics"), ("mix", "statistics"), ("mix", "tensor"), ("mix", "structure")]


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc, self.out = nn.LayerNorm((6,)), nn.Dense(6, 6), nn.Dense(6, 3)

    def construct(self, x: Any) -> Any:
        return self.out(x + self.fc(self.norm(x)) * 2)


def training(recorded: bool) -> Callable[[], None]:
    net, x = filled(Net()), data()[0]
    both = ms.value_and_grad(lambda value: ops.sum(net(value)), None, net.trainable_params())

    def step() -> None:
        if recorded:
            PrecisionDebugger.start(net)
        both(x)
        if recorded:
            PrecisionDebugger.stop()
            PrecisionDebugger.step()

    return step


def garbage(step: Callable[[], None]) -> Counter[str]:
    for _ in range(3):
        step()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    step()
    gc.collect()
    gc.set_debug(0)
    found = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    gc.garbage.clear()
    gc.enable()
    return found


found = {"plain": garbage(training(False))}
for level, task in SETTINGS:
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    PrecisionDebugger(level=level, task=task, dump_path=f"{level}_{task}")
    found[f"{level} {task}"] = garbage(training(True))
Path(sys.argv[1]).write_text(json.dumps(found))
