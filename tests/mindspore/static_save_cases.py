"""save, save_grad and step in graph mode, in jit and in PyNative, in one process; run by test_static_save.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from msprobe.mindspore import save, save_grad, step

ms.set_device("CPU")
_ = Tensor(np.ones(1, np.float32)) * 2
HERE = Path.cwd()


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
            save(self.where, "lst", [x, {"k": z}, (z,)])
            save(self.where, "x", x + 1)
            z = save_grad(self.where, "z", z)
        y = ops.tanh(z) * z
        if self.saving:
            y = save_grad(self.where, "y", y)
            save(self.where, "h", ops.cast(z, ms.float16))
            save(self.where, "bf", ops.cast(z, ms.bfloat16))
            save(self.where, "i", ops.cast(z, ms.int32))
            save(self.where, "c", ops.cast(z, ms.complex64))
            save(self.where, "b", z > 0)
            save(self.where, "bf0", ops.cast(z.sum(), ms.bfloat16))
            save(self.where, "empty", z[0:0])
            save(self.where, "const", Tensor([1.0, 2.0]))
            for j in range(2):
                save(self.where, "loop", z + j)
        total = y.sum()
        if self.saving:
            total = save_grad(self.where, "total", total)
        return total


class Mixed(nn.Cell):
    def __init__(self, where):
        super().__init__()
        self.where = where

    def construct(self, x):
        save(self.where, "mixed", [x, 3, None, "text"])
        return x + 1


def listing(directory):
    found = {}
    for path in sorted(directory.rglob("*.npy")):
        array = np.load(path)
        text = [str(item) for item in array.ravel()[:2].tolist()]
        found[str(path.relative_to(directory))] = [str(array.dtype), list(array.shape), text]
    return found


def bits(values):
    return [value.asnumpy().tobytes().hex() for value in values]


answer = {}
x = Tensor(np.arange(6).reshape(2, 3).astype(np.float32) - 2)
for mode in sys.argv[2:]:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    results = {}
    for saving in (False, True):
        net = Net(f"./{mode}", saving)
        if mode == "jit":
            net.construct = ms.jit(net.construct)
        forward = ms.value_and_grad(net, 0, net.trainable_params())
        results[saving] = []
        for _ in range(2):
            loss, (of_x, of_weights) = forward(x)
            results[saving] += bits([loss, of_x, *of_weights])
            if saving:
                step()
        if saving:
            answer[mode] = listing(HERE / mode)
    answer[f"{mode}_same"] = results[False] == results[True]
    mixed = Mixed(f"./mixed_{mode}")
    if mode == "jit":
        mixed.construct = ms.jit(mixed.construct)
    mixed(x)
    step()
    answer[f"{mode}_mixed"] = sorted(listing(HERE / f"mixed_{mode}"))

wrong = [save("./wrong", 3, x), save("", "x", x), save_grad("./wrong", "n", 3)]
answer["wrong"] = [wrong, (HERE / "wrong").exists()]
answer["returned"] = bits([save_grad("./same", "n", x)]) == bits([x])


class UsedTwice(nn.Cell):
    """What save_grad was given is used beside what it has returned."""

    def construct(self, x):
        z = x * 2
        returned = save_grad(self.where, "part", z)
        return (returned * returned + 5 * z).sum()


for mode in sys.argv[2:]:
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    net = UsedTwice()
    net.where = f"./part_{mode}"
    if mode == "jit":
        net.construct = ms.jit(net.construct)
    whole = ms.grad(net)(x)
    step()
    (path,) = (HERE / f"part_{mode}").rglob("*.npy")
    answer[f"{mode}_part"] = [path.name, np.load(path).tolist(), whole.asnumpy().tolist()]
for _ in range(2):
    save("./one", "x", x)  # nothing waits for these two before the interpreter ends
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
