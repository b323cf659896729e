"""Level L2 on a CPU; run by test_kernels.py in MindSpore's interpreter. Arguments: the answer, `pynative` or `late`."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from msprobe.mindspore import PrecisionDebugger
from msprobe.mindspore.kernel_dump import starting

ms.set_device("CPU")
answer, told = {}, []
x = Tensor(np.ones((2, 3), np.float32))


class Keep(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            told.append(record.getMessage())


logging.getLogger("msprobe").addHandler(Keep())


class Inner(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wide = nn.Dense(4, 4)

    @ms.jit
    def construct(self, x):
        return ops.tanh(self.wide(x))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.inner = nn.Dense(3, 4), Inner()

    def construct(self, x):
        return ops.sin(self.inner(self.first(x)))


def levels():
    """(jit_level, whether somebody has set it) of this process, as far as it is an Ascend device or a CPU."""

    def level(model=None):
        found = starting.machine(model)
        return [found.jit_level, found.level_set]

    found = {"unset": level()}
    cell = nn.Dense(3, 4)
    cell.set_jit_config(ms.JitConfig(jit_level="O1"))
    ms.set_context(jit_config={"jit_level": "O2"})
    found["context"], found["cell"], found["a cell without"] = level(), level([cell]), level(nn.Dense(3, 4))
    ms.set_context(jit_level="")
    ms.set_context(mode=ms.GRAPH_MODE)
    of_target = ms.get_context

    def ascend(name):
        return "Ascend" if name == "device_target" else "" if name == "jit_level" else {} if name == "jit_config" else of_target(name)

    ms.get_context = ascend
    for name, whole in (("does not say", None), ("pieces", False), ("whole", True)):
        starting.whole_graphs_by_default = lambda whole=whole: whole
        found[name] = level()
    starting.whole_graphs_by_default = lambda: False
    with_table = {"RANK_TABLE_FILE": "/somewhere.json"}
    starting.os.environ.update(with_table)
    found["rank table"] = level()
    starting.os.environ["MS_ROLE"] = "MS_WORKER"
    found["rank table, but a scheduler"] = level()
    ms.hal.device_count = lambda target: 16 if target == "Ascend" else 0
    found["devices"] = starting.machine().devices
    return found


net = Net()
if sys.argv[2] == "late":
    ms.set_context(mode=ms.GRAPH_MODE)
    earlier = nn.Dense(3, 4)
    earlier(x)
    net = nn.SequentialCell(nn.Dense(3, 4), nn.Tanh())
section = {"scope": ["one"], "list": []} if sys.argv[2] == "pynative" else {}
Path("config.json").write_text(json.dumps({"task": "tensor", "dump_path": "./dump", "level": "L2", "tensor": section}), encoding="utf-8")
debugger = PrecisionDebugger("./config.json")
debugger.start(net)
net(x).asnumpy()
debugger.stop()
debugger.step()
answer["told"] = list(told)
answer["files"] = sorted(path.name for path in Path("dump").rglob("*.npy"))
if sys.argv[2] == "pynative":
    answer["levels"] = levels()
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
