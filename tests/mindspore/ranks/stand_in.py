"""The second process of the second node, as far as MindSpore's communication says; run by test_ranks.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, nn, ops

from msprobe.mindspore import PrecisionDebugger, save, step

communication.GlobalComm.INITED = True
communication.get_rank = lambda: 9
communication.get_local_rank_size = lambda: 16
ms.set_device("CPU")
x = Tensor(np.ones((2, 3), np.float32))
_ = x * 2
answer, told = {}, []


class Keep(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())


logging.getLogger("msprobe").addHandler(Keep())


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(3, 4)

    def construct(self, x):
        return ops.tanh(self.first(x))


def run(name, level, rank, by_hand=None, graph=False):
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    told.clear()
    settings = {"task": "tensor" if level == "L2" else "statistics", "dump_path": name, "level": level, "rank": rank}
    Path(f"{name}.json").write_text(json.dumps(settings), encoding="utf-8")
    debugger = PrecisionDebugger(f"{name}.json")
    net = Net()
    if level == "debug":
        debugger.save(x, "x")
    else:
        debugger.start(net, by_hand)
        if level != "L2":  # MindSpore would read the settings of the first one, and never again
            net(x)
        debugger.stop()
    debugger.step()
    PrecisionDebugger._session.at_exit()
    places = [str(path.parent.relative_to(name)) for path in Path(name).rglob("d*.json") if "rank" in path.parent.name]
    answer[name] = {"places": places, "told": list(told), "variable": os.environ.pop("MINDSPORE_DUMP_CONFIG", None)}


def run_all(ending):
    for level in ("L0", "L1", "mix", "debug"):
        run(f"{level}_{ending}_1", level, ["1-3"])
        run(f"{level}_{ending}_9", level, [9])
    run(f"static_{ending}_1", "L0", [1], graph=True)
    run(f"static_{ending}_9", "L0", [9], graph=True)


communication.get_local_rank = lambda: 1
run_all("known")
run("by_hand", "L0", [1], 20)
for ranks in ([1], [9], []):
    run(f"L2_{len(ranks) and ranks[0]}", "L2", ranks, graph=True)
save("saved", "x", x)
step()
answer["saved"] = [str(path) for path in Path("saved").rglob("*.npy")]


def unknown():
    raise RuntimeError("planted")


communication.get_local_rank = unknown
run_all("unknown")
communication.GlobalComm.INITED = False
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
