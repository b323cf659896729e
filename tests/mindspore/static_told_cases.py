"""What graph mode does not have, or does otherwise, is told at start(); run by test_static_told.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from msprobe.mindspore import PrecisionDebugger, device
from msprobe.mindspore.static_dump import starting, wrapping
from msprobe.mindspore.static_dump.recorder import RECORDER, UNNUMBERED, Spot
from msprobe.mindspore.static_dump.step import StaticStep

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")
x = Tensor(np.ones((2, 3), np.float32))
answer = {}
told = []
lines = []


class Keep(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            told.append(record.getMessage())
        if record.getMessage().startswith("[step "):
            lines.append(record.getMessage())
        if "nothing more is recorded" in record.getMessage():
            answer.setdefault("last", []).append(record.getMessage())


logging.getLogger("msprobe").addHandler(Keep())


class Net(nn.Cell):
    def __init__(self, wide=2):
        super().__init__()
        self.first, self.out = nn.Dense(3, 4), nn.Dense(4, wide)

    def construct(self, x):
        return self.out(self.first(x))


def run(name, net=None, nets=(None, None), **settings):
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    told.clear()
    lines.clear()
    Path(f"{name}.json").write_text(json.dumps({"task": "statistics", "dump_path": name, "level": "L0", **settings}), encoding="utf-8")
    debugger = PrecisionDebugger(f"{name}.json")
    ms.set_seed(0)
    net = net or Net()
    bits = []
    first = net
    for another in nets:
        net = another or first
        debugger.start(net)
        bits.append(net(x).asnumpy().tobytes().hex())
        debugger.stop()
        debugger.step()
    data = [json.loads(path.read_text(encoding="utf-8"))["data"] for path in sorted(Path(name).rglob("dump.json"))]
    unread = [json.loads(path.read_text(encoding="utf-8")).get("unread") for path in sorted(Path(name).rglob("meta.json"))]
    files = sorted(path.name for path in Path(name).glob("step0/**/*.npy"))
    constructs = ["construct" in vars(cell) for _, cell in net.cells_and_names()]
    answer[name] = {
        "told": list(told),
        "lines": list(lines),
        "data": data,
        "files": files,
        "unread": unread,
        "bits": bits,
        "taps": any(constructs),
    }
    return PrecisionDebugger._session


for level in ("L1", "mix"):
    run(level, level=level)
run("structure", task="structure")
run("rank", rank=[0])
run("device", statistics={"device": "device"})
run("md5", statistics={"summary_mode": "md5"})
run("some", statistics={"summary_mode": ["max", "l2norm"], "data_mode": ["forward"]})
run("tensor_list", statistics={"tensor_list": ["first"], "data_mode": ["forward"]})
run("nothing", statistics={"list": ["no_such_cell"]})
run("listed", statistics={"list": ["Cell.first.Dense.forward", "out"]}, step=[0])
run("scope", statistics={"scope": ["Cell.out.Dense.forward.0", "Cell.out.Dense.forward.0"]})
other = Net()
run("another", nets=[None, other])
ms.set_seed(0)
shapeless = Net()
shapeless.set_inputs(Tensor(shape=[None, 3], dtype=ms.float32))
run("shapeless", net=shapeless)
ms.set_context(jit_config={"jit_level": "O2"})
target, device.device_target.__code__ = device.device_target.__code__, (lambda: "Ascend").__code__
run("ascend")
device.device_target.__code__ = target
ms.set_context(jit_config={"jit_level": "O0"})
ran = Net()
ran(x)
run("compiled", net=ran)
# one tensor file cannot be written: a directory is in its place
Path("files", "step0", f"proc{os.getpid()}", "dump_tensor_data", "Cell.first.Dense.forward.0.input.0.npy", "inside").mkdir(parents=True)
run("files", net=Net(100_000), task="tensor")
answer["files"]["sizes"] = [sum(p.stat().st_size for p in Path("files", step).rglob("*") if p.is_file()) for step in ("step0", "step1")]


def broken(base, path, value, number):
    return value.there_is_no_such_method(number)


give, wrapping.give = wrapping.give, broken
run("broken", statistics={"data_mode": ["forward"]})  # it is not tried without hooks and gradients, too
wrapping.give = give


class Curved(nn.Cell):
    """Second derivatives of a net."""

    def __init__(self):
        super().__init__()
        ms.set_seed(0)
        self.net = Net()
        self.first = ms.grad(self.squared)
        self.second = ms.grad(self.slope)

    def squared(self, x):
        return (self.net(x) ** 2).sum()

    def slope(self, x):
        return (self.first(x) ** 2).sum()

    def construct(self, x):
        return self.second(x)


bare = Curved()(x).asnumpy().tobytes().hex()
run("curved", net=Curved())
answer["curved"]["same"] = answer["curved"]["bits"] == [bare, bare]


def failing(step):
    raise RuntimeError("made to fail")


close, StaticStep.close = StaticStep.close, failing
session = run("failing")
StaticStep.close = close
answer["failing"]["number"] = session.number
answer["failing"]["log"] = [path.read_text(encoding="utf-8") for path in sorted(Path("failing").rglob("dump_error_info.log"))]
PrecisionDebugger._instance = PrecisionDebugger._session = None
Path("late.json").write_text(json.dumps({"task": "statistics", "dump_path": "late", "level": "L0"}), encoding="utf-8")
late, net = PrecisionDebugger("late.json"), Net()
late.start(net)
base = "Cell.first.Dense"
RECORDER.forward_run = [base] * 3
spot = Spot(base, "parameters_grad", "", "weight")
for runs in range(2):
    for call in range(3):
        RECORDER.number(base)
        if call > 0:  # twice: before the last call of the run has begun, and after
            RECORDER.take(spot, UNNUMBERED, "Float32", np.full(2, 10 * runs + call, np.float32))
# a run of the graph that calls another cell: the zero that it has for this one, and a sum that is zero
RECORDER.number("Cell.out.Dense")
RECORDER.take(spot, UNNUMBERED, "Float32", np.zeros(2, np.float32))
RECORDER.take(spot._replace(path="bias"), UNNUMBERED, "Float32", np.full(2, 3, np.float32))
RECORDER.take(spot._replace(path="bias"), UNNUMBERED, "Float32", np.zeros(2, np.float32))
RECORDER.take(Spot("Cell.never.Dense", "parameters_grad", "", "weight"), UNNUMBERED, "Float32", np.zeros(2, np.float32))
late.step()
(path,) = Path("late").rglob("dump.json")
gradients = json.loads(path.read_text(encoding="utf-8"))["data"]
answer["late"] = {name: {key: record["Max"] for key, (record,) in entry.items()} for name, entry in gradients.items()}


class Fails:
    """What the user has started has failed, and whoever waits first is told."""

    left = 1

    def __call__(self):
        self.left -= 1
        return ValueError("theirs") if self.left == 0 else None


PrecisionDebugger._instance = PrecisionDebugger._session = None
Path("users.json").write_text(json.dumps({"task": "statistics", "dump_path": "users", "level": "L0"}), encoding="utf-8")
users, net = PrecisionDebugger("users.json"), Net()
users.start(net, rank_id=3)
told.clear()
users.start(net)
net(x)
waits, starting.wait_for_device = starting.wait_for_device, Fails()
users.stop()
try:
    users.step()
except ValueError as error:
    answer["users"] = [str(error), len(json.loads(Path("users/step0/rank3/dump.json").read_text(encoding="utf-8"))["data"]), list(told)]
starting.wait_for_device = waits
Path("unended.json").write_text(json.dumps({"task": "statistics", "dump_path": "unended", "level": "L0"}), encoding="utf-8")
PrecisionDebugger._instance = PrecisionDebugger._session = None
unended, net = PrecisionDebugger("unended.json"), Net()
unended.start(net)
net(x)
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
