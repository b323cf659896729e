"""Trains every net with and without msprobe, and says whether a single bit differs. Arguments: the file for the answer."""

from __future__ import annotations

import json
import sys

import mindspore as ms
from mindspore import nn
from mindspore_nets import NETS, data, made

from msprobe.mindspore import PrecisionDebugger


def train(kind, around):
    net = made(kind)
    loss = nn.MSELoss()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    step = ms.value_and_grad(lambda x, y: loss(net(x), y), None, net.trainable_params())
    bits = []
    for number in range(2):
        x, y = data(number)
        with around(net):
            value, gradients = step(x, y)
            optimizer(gradients)
        bits.append(value.asnumpy().tobytes())
        bits += [gradient.asnumpy().tobytes() for gradient in gradients]
        bits += [parameter.asnumpy().tobytes() for parameter in net.get_parameters()]
    return bits


class Plain:
    def __init__(self, net):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


class Recorded(Plain):
    def __init__(self, net):
        self.net = net

    def __enter__(self):
        PrecisionDebugger.start(self.net)

    def __exit__(self, *_):
        PrecisionDebugger.stop()
        PrecisionDebugger.step()


answers = {}
for kind in NETS:
    try:
        plain = train(kind, Plain)
    except Exception as error:  # a release that lacks an operator on this device
        answers[kind.__name__] = {"MindSpore itself": repr(error)[-2000:]}
        continue
    answers[kind.__name__] = {}
    for level, task in (("L0", "statistics"), ("L1", "statistics"), ("mix", "tensor")):
        PrecisionDebugger._instance = PrecisionDebugger._session = None
        PrecisionDebugger(level=level, task=task, dump_path=f"{kind.__name__}/{level}")
        try:
            answers[kind.__name__][level] = train(kind, Recorded) == plain
        except Exception as error:
            answers[kind.__name__][level] = repr(error)[-2000:]
            PrecisionDebugger.step()
with open(sys.argv[1], "w") as file:
    json.dump(answers, file)
