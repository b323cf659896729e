"""PrecisionDebugger.save with all that a configuration says; run by test_debug_save.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
_ = Tensor(np.ones(1, np.float32)) * 2
answer = {}
x = Tensor(np.arange(6).reshape(2, 3).astype(np.float32) / 8)


def started(name, **settings):
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    settings = {"task": "statistics", "dump_path": name, "level": "debug", **settings}
    Path(f"{name}.json").write_text(json.dumps(settings), encoding="utf-8")
    return PrecisionDebugger(f"{name}.json")


def note(name):
    found = {path.parent.parent.name: json.loads(path.read_text(encoding="utf-8"))["data"] for path in Path(name).rglob("debug.json")}
    files = {path.name: np.load(path).tolist() for path in sorted(Path(name).rglob("*.npy"))}
    answer[name] = {"steps": found, "files": files}


def run(name, steps=1, **settings):
    debugger = started(name, **settings)

    def forward(x):
        y = x * 3
        debugger.save({"y": y, "more": [1, "text"]}, "values")
        return (ops.tanh(y) * y).sum()

    for _ in range(steps):
        gradient = ms.grad(forward)(x)
        debugger.step()
    note(name)
    return gradient


run("md5", statistics={"summary_mode": "md5"})
run("steps", steps=5, step=[1, "3-4"])
run("rank", rank=[0])
run("async", async_dump=True)
run("async_tensor", async_dump=True, task="tensor", tensor={"list": ["values"]})
answer["of_x"] = run("tensor", task="tensor").asnumpy().tolist()
y = x * 3
answer["of_y"] = ms.grad(lambda y: (ops.tanh(y) * y).sum())(y).asnumpy().tolist()  # what MindSpore itself computes
answer["bytes"] = [y.asnumpy().tobytes().hex(), ms.grad(lambda y: (ops.tanh(y) * y).sum())(y).asnumpy().tobytes().hex()]

# MindSpore 2.10 runs no graph backwards twice from Python; a hook that is called again stands for it.
hooks = []
register = Tensor.register_hook
Tensor.register_hook = lambda self, hook: hooks.append(hook) or register(self, hook)
debugger = started("again", task="tensor")
debugger.save(y, "y")
Tensor.register_hook = register
for number in (1, 2, 3):
    hooks[0](ops.ones_like(y) * number)
debugger.step()
hooks[0](y)  # after the step's end: nobody listens
note("again")
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
