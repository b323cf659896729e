"""Functions that were imported by name before start(); run by test_by_name.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops
from mindspore.mint import tanh as mint_tanh
from mindspore.ops import relu, sin

from msprobe.mindspore import PrecisionDebugger

ms.set_device("CPU")
ms.set_context(mode=ms.PYNATIVE_MODE)
_ = Tensor(np.ones(1, np.float32)) * 2
original = relu
x = Tensor(np.arange(6).reshape(2, 3).astype(np.float32) - 2)


def forward(x):
    return (relu(x) * mint_tanh(x) + ops.relu(sin(x))).sum()


plain = ms.grad(forward)(x).asnumpy().tobytes()
debugger = PrecisionDebugger(level="L1", dump_path="dump")
debugger.start()
same = relu is ops.relu
seen = ms.grad(forward)(x).asnumpy().tobytes()
debugger.stop()
debugger.step()
answer = {"same": seen == plain, "one": same, "back": relu is original and ops.relu is original}
with open(sys.argv[1], "w") as file:
    json.dump(answer, file)
