"""Level L0 in graph mode; run by test_static_dump.py in MindSpore's interpreter. Arguments: the answer, task, data_mode."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.d = nn.Dense(4, 4)
        self.r = nn.ReLU()

    def construct(self, x, y, factor, scale=None):
        z = self.r(self.d(x)) + y * factor
        if scale is not None:
            z = z * scale
        return z, x


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.d1 = nn.Dense(3, 4)
        self.b = Block()
        self.shared = nn.Dense(4, 4)
        self.d2 = nn.Dense(4, 2)

    def construct(self, x):
        y = self.d1(x)
        y = self.shared(self.shared(y))
        a, b = self.b(y, y * 2, 2, scale=y)
        return ops.cast(self.d2(a + b), ms.float32).sum()


def run(record):
    ms.set_seed(0)
    net = Net()
    forward = ms.value_and_grad(net, 0, net.trainable_params())
    x = Tensor(np.arange(6).reshape(2, 3).astype(np.float32) / 8)
    found, loss_gradients = [], []
    for _ in range(3):
        if record is not None:
            record.start(net)
        loss, (of_x, of_weights) = forward(x)
        if record is not None:
            record.stop()
            record.step()
        loss_gradients = [value.asnumpy() for value in (loss, of_x, *of_weights)]
        found.append([value.tobytes().hex() for value in loss_gradients])
    return found, loss_gradients


task, mode = sys.argv[2:4]
bare, wanted = run(None)
Path("config.json").write_text(
    json.dumps({"task": task, "dump_path": "./dump", "level": "L0", "step": [0, 2], task: {"data_mode": [mode]}}), encoding="utf-8"
)
from msprobe.mindspore import PrecisionDebugger  # noqa: E402

seen, values = run(PrecisionDebugger("./config.json"))
close = all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(wanted, values, strict=True))
names = ["loss", "x", "d1.weight", "d1.bias", "b.d.weight", "b.d.bias", "shared.weight", "shared.bias", "d2.weight", "d2.bias"]
answer = {"same": bare == seen, "close": close, "steps": sorted(path.name for path in Path("dump").iterdir())}
answer["gradients"] = {name: [float(value.max()), list(value.shape)] for name, value in zip(names, values, strict=True)}
(place,) = Path("dump/step2").iterdir()
for name in ("dump", "construct"):
    answer[name] = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
answer["files"] = {path.name: list(np.load(path).shape) for path in place.rglob("*.npy")}
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
