"""Trains the net in MindSpore, once for each case, into a directory of its own below the working directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from across.weights import ATTENTION, ATTENTION_CASES, CASES, RATE, STEPS, TARGET, TOKENS, WEIGHTS, WORDS
from mindspore import Tensor, nn, ops

from msprobe.mindspore import PrecisionDebugger

Tensor(np.ones(1, np.float32)) * 2  # the first operation with a Python scalar may fail with numpy 2: MindSpore's own fault
PARAMETERS = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}


class Net(nn.Cell):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.embed = nn.Embedding(11, 8)
        self.conv = nn.Conv2d(1, 2, 3, pad_mode="pad", padding=1, has_bias=True)
        self.bn = nn.BatchNorm2d(2)
        self.blocks = nn.SequentialCell([nn.Dense(96, 6), nn.ReLU()])
        self.norm = nn.LayerNorm((6,), epsilon=1e-5)
        self.flat, self.head = nn.Flatten(), nn.Dense(6, 3)

    def construct(self, tokens):
        h = ops.expand_dims(self.embed(tokens), 1)
        h = self.flat(ops.relu(self.bn(self.conv(h))))
        h = self.norm(self.blocks(h)) * self.factor
        return self.head(ops.tanh(h))


def begun(name, level, task):
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    Path(f"{name}.json").write_text(json.dumps({"task": task, "level": level, "dump_path": f"ms_{name}", task: {}}))
    return PrecisionDebugger(f"{name}.json")


def train(name, level, task, factor):
    debugger = begun(name, level, task)
    net = Net(factor)
    net.set_train()
    for path, cell in net.cells_and_names():
        for parameter_name, parameter in cell._params.items():
            value = WEIGHTS.get(f"{path}.{PARAMETERS.get(parameter_name, parameter_name)}")
            if value is not None:
                parameter.set_data(Tensor(value))
    optimizer = nn.SGD(net.trainable_params(), RATE)
    step = ms.value_and_grad(lambda tokens, target: ops.square(net(tokens) - target).mean(), None, net.trainable_params())
    for _ in range(STEPS):
        debugger.start(net)
        _, gradients = step(Tensor(TOKENS), Tensor(TARGET))
        debugger.stop()
        debugger.step()
        optimizer(gradients)


class Attention(nn.Cell):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Dense(16, 16) for _ in range(4))

    def construct(self, x):
        q, k, v = (ops.transpose(ops.reshape(layer(x), (4, 5, 2, 8)), (0, 2, 1, 3)) for layer in (self.q, self.k, self.v))
        scores = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / 2.0, -1)
        return x + self.o(ops.reshape(ops.transpose(ops.matmul(scores, v), (0, 2, 1, 3)), (4, 5, 16)))


def attend(name, level, task):
    debugger = begun(name, level, task)
    net = Attention()
    for parameter in net.get_parameters():
        parameter.set_data(Tensor(ATTENTION[parameter.name]))
    debugger.start(net)
    ms.value_and_grad(lambda x: ops.square(net(x)).sum(), None, net.trainable_params())(Tensor(WORDS))
    debugger.stop()
    debugger.step()


for name, case in CASES.items():
    train(name, *case)
for name, case in ATTENTION_CASES.items():
    attend(name, *case)
Path(sys.argv[1]).write_text(json.dumps(sorted(CASES)))
