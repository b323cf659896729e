"""Trains nets in graph mode with and without level L0, and in PyNative; run by test_static_identical.py in MindSpore's interpreter.
Arguments: the answer, names of nets (with `+`: data_mode forward, too), or `model`."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import static_nets
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Model
from static_nets import Order, data, made, train

from msprobe.mindspore import MsprobeStep, PrecisionDebugger

ms.set_device("CPU")
Warned: list[str] = []
Told: list[str] = []


class Keep(logging.Handler):
    def emit(self, record):
        if "last bits" in record.getMessage():
            Warned.append(record.getMessage())
        elif "gradients of parameters are not recorded" in record.getMessage():
            Told.append(record.getMessage())


logging.getLogger("msprobe").addHandler(Keep())


def debugger(where, task="statistics", mode="all"):
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    settings = {"task": task, "dump_path": where, "level": "L0", task: {"data_mode": [mode]}}
    Path("config.json").write_text(json.dumps(settings), encoding="utf-8")
    return PrecisionDebugger("config.json")


def bits(values):
    return [value.tobytes() for value in values]


def dump(where):
    (place,) = Path(where, "step1").iterdir()
    return [json.loads((place / f"{name}.json").read_text(encoding="utf-8")) for name in ("dump", "construct", "meta")]


def by_model(where):
    """Model.train, which compiles the optimizer too."""
    net = made(Order)
    model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.05, 0.9))
    callbacks = [MsprobeStep(debugger(where))] if where else []
    rows = [tuple(value.asnumpy() for value in data(number)) for number in range(2)]
    model.train(1, GeneratorDataset(rows, ["x", "y"], shuffle=False), callbacks=callbacks, dataset_sink_mode=False)
    return bits(parameter.asnumpy() for parameter in net.get_parameters())


answer = {}
for argument in sys.argv[2:]:
    ms.set_context(mode=ms.GRAPH_MODE)
    if argument == "model":
        answer["model"] = by_model("") == by_model("model")
        answer["model_entries"] = list(dump("model")[0]["data"])
        continue
    name = argument.rstrip("+")
    kind = getattr(static_nets, name)
    plain = train(kind)
    found = answer[name] = {}
    for mode in ("all", "forward") if argument.endswith("+") else ("all",):
        Warned.clear()
        Told.clear()
        seen = train(kind, debugger(f"{name}_{mode}", mode=mode))
        close = all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(plain, seen, strict=True))
        found[mode] = {"same": bits(plain) == bits(seen), "close": close, "warned": list(Warned)}
        found["told"] = list(Told)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    train(kind, debugger(f"{name}_pynative"))
    found["graph"], found["pynative"] = dump(f"{name}_all"), dump(f"{name}_pynative")
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
