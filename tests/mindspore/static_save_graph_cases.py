"""save and save_grad in graphs of all kinds, with and without; run by test_static_save_graphs.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from static_nets import WIDTH, data, dense, made, train

from msprobe.mindspore import save, save_grad, step

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")
os.environ["HOME"] = str(Path.cwd() / "home")


class Attention(nn.Cell):
    def __init__(self, saving):
        super().__init__()
        self.q, self.k, self.v = dense(), dense(), dense()
        self.saving = saving

    def construct(self, x):
        q = self.q(x)
        if self.saving:
            save("./blocks", "x", x)
            save("./blocks", "q", q)
            q = save_grad("./blocks", "q", q)
        return ops.matmul(ops.softmax(ops.matmul(q, self.k(x).T) / 3, -1), self.v(x))


class Blocks(nn.Cell):
    """Cells that save, one after the other; what they are given is used four times."""

    def __init__(self, saving):
        super().__init__()
        self.blocks = nn.CellList([Attention(saving) for _ in range(2)])
        self.norm = nn.LayerNorm((WIDTH,))
        self.saving = saving

    def construct(self, x):
        for block in self.blocks:
            x = self.norm(x + block(x))
            if self.saving:
                save("./blocks", "after", x)
        return x


class Flow(nn.Cell):
    """Loops and branches that are decided when the graph runs."""

    def __init__(self, saving):
        super().__init__()
        self.again = dense()
        self.saving = saving

    def construct(self, x):
        i = Tensor(0, ms.int32)
        while i < 3:
            x = ops.tanh(self.again(x)) + ops.sin(x) * x
            if self.saving:
                save("~/flow", "w", x)
                x = save_grad("~/flow", "w", x)
            i = i + 1
        if x.sum() > 0:
            if self.saving:
                save("~/flow", "more", x)
        else:
            if self.saving:
                save("~/flow", "less", x)
        return x


class Wrong(nn.Cell):
    """Arguments that cannot be used."""

    def __init__(self, saving):
        super().__init__()
        self.first = dense()
        self.saving = saving

    def construct(self, x):
        name = "a"
        factor = 3
        if self.saving:
            if x.sum() > 0:
                name = "b"
            save("./wrong", name, x)
            save("./wrong", 3, x)
            save("", "x", x)
            x = save_grad("./wrong", 3, x)
            factor = save_grad("./wrong", "factor", 3)
        return self.first(x) * factor


class Open(nn.Cell):
    def __init__(self, saving):
        super().__init__()
        self.first = dense()
        self.saving = saving

    def construct(self, x):
        y = self.first(x)
        if self.saving:
            save("./open", "y", y)
            y = save_grad("./open", "y", y)
        return y


def open_shapes(saving):
    net = made(lambda: Open(saving))
    net.set_inputs(Tensor(shape=[None, WIDTH], dtype=ms.float32))
    return [net(data(0)[0][:rows]).asnumpy().tobytes() for rows in (2, 3)]


def bits(kind, saving):
    return [array.tobytes() for array in train(lambda: kind(saving), steps=1)]


answer = {}
for kind in (Blocks, Flow, Wrong):
    answer[kind.__name__] = bits(kind, False) == bits(kind, True)
    step()
answer["Open"] = open_shapes(False) == open_shapes(True)
answer["files"] = {str(path): float(np.load(path).sum()) for path in sorted(Path().rglob("*.npy"))}
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
