"""save, save_grad and step where TensorDump writes the files; run by test_static_dumped.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from standing_in_for_tensor_dump import stand_in

from msprobe.mindspore import save, save_grad, step
from msprobe.mindspore.static_save.dumped import DumpedFiles
from msprobe.mindspore.static_save.files import SavedFiles

ms.set_device("CPU")
x = Tensor(np.arange(6).reshape(2, 3).astype(np.float32))
LONG = "n" * 240
answer = {}


class Net(nn.Cell):
    def __init__(self, where, saving):
        super().__init__()
        self.w = ms.Parameter(Tensor(np.arange(6).reshape(3, 2).astype(np.float32)), name="w")
        self.where = where
        self.saving = saving

    def construct(self, x):
        z = ops.matmul(x * 2, self.w)
        if self.saving:
            save(self.where, "x", x)
            save(self.where, "lst", [x, {"k": z}])
            save(self.where, "x", ops.cast(x + 1, ms.float16))
            save(self.where, "a/b", z)
            save(self.where, LONG, z)
            z = save_grad(self.where, "z", z)
        return (ops.tanh(z) * z).sum()


def listing(directory):
    return {str(path.relative_to(directory)): np.load(path).ravel()[:2].tolist() for path in sorted(Path(directory).rglob("*.npy"))}


def bits(values):
    return [value.asnumpy().tobytes().hex() for value in values]


def run(where, saving):
    net = Net(where, saving)
    forward = ms.value_and_grad(net, 0, net.trainable_params())
    found = []
    for _ in range(2):
        loss, (of_x, of_weights) = forward(x)
        found += bits([loss, of_x, *of_weights])
        if saving:
            step()
    return found


# TensorDump itself, which a CPU has in PyNative: what it calls its files
dumped, files = DumpedFiles(), SavedFiles()
names = ["r", "r", "deep.0", "s/t", "r.npy"]
for name in names:
    ops.TensorDump()(dumped.path("real", name), x)
ops.TensorDump()(dumped.path("real", "bf"), ops.cast(x, ms.bfloat16))
until = time.monotonic() + 60
while len(list(Path("real").rglob("*.npy"))) < 6 and time.monotonic() < until:
    time.sleep(0.01)
answer["before"] = sorted(path.name for path in Path("real").rglob("*.npy"))
dumped.settle(files, last=True)
answer["real"] = listing("real")

# files that come late, an earlier run's, those of somebody else
dumped, files = DumpedFiles(), SavedFiles()
place = Path("late/step0/rank0")
place.mkdir(parents=True)
for name in ("a", "b"):
    dumped.path("late", name)


def comes(name, number, value):
    np.save(place / f"{name}.tensordump_float32_{number}.npy", np.full(2, value, np.float32))


comes("a", 9, -1)
os.utime(place / "a.tensordump_float32_9.npy", (1, 1))
for name, number in (("a", 0), ("b", 3), ("a", 4)):
    comes(name, number, number)
np.save(place / "foreign_float32_2.npy", np.zeros(2, np.float32))
dumped.settle(files)
answer["first_look"] = listing("late")
comes("a", 1, 1)
files.end_step()
dumped.settle(files)
answer["second_look"] = listing("late")
comes("b", 7, 7)
dumped.settle(files, last=True)
answer["last_look"] = listing("late")

ms.set_context(mode=ms.GRAPH_MODE)
bare = run("", False)
stand_in()
answer["same"] = run("./graph", True) == bare
answer["graph"] = listing("graph")
stand_in("GPU")
answer["nowhere"] = [run("./nowhere", True) == bare, Path("nowhere").exists()]
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
