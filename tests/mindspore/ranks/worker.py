"""One of several processes; run by test_ranks.py in MindSpore's interpreter. Argument: the file for the answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, nn, ops

ms.set_device("CPU")
communication.init()  # the scheduler ends in here

from msprobe.mindspore import PrecisionDebugger, save, step  # noqa: E402

x = Tensor(np.ones((2, 3), np.float32))
_ = x * 2


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(3, 4)

    def construct(self, x):
        return ops.tanh(self.first(x))


def run(name, level, rank):
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    own = f"{name}.{communication.get_rank()}.json"
    task = "tensor" if level == "L2" else "statistics"
    Path(own).write_text(json.dumps({"task": task, "dump_path": name, "level": level, "rank": rank}), encoding="utf-8")
    debugger = PrecisionDebugger(own)
    net = Net()
    if level == "debug":
        debugger.save(x, "x")
    else:
        debugger.start(net)
        net(x)
        debugger.stop()
    debugger.step()


def communicate():
    """Ranks have 1 and 2; a run without recording comes first."""
    from mindspore.mint import distributed

    def recv(tensor, src=0, group=None, tag=0):
        """MindSpore's own asks for Ascend's group on a CPU, as does the next one."""
        tensor[:] = 7.0
        return src

    def all_reduce(tensor, op="sum", group=None, async_op=False):
        return tensor * 2, None

    distributed.recv, communication.comm_func.all_reduce = recv, all_reduce
    number = communication.get_rank() + 1.0
    found = []
    for recorded in (False, True):
        if recorded:
            PrecisionDebugger._instance = PrecisionDebugger._session = None
            own = f"communication{communication.get_rank()}.json"  # the other process reads its file while this one is written
            Path(own).write_text(json.dumps({"dump_path": "communication", "level": "L1"}), encoding="utf-8")
            PrecisionDebugger(own).start()
        summed, passed, later = (Tensor(np.full(3, number, np.float32)) for _ in range(3))
        results = [distributed.all_reduce(summed), distributed.recv(passed, src=1)]
        handle = distributed.all_reduce(later, async_op=True)
        handle.wait()
        sums, _ = communication.comm_func.all_reduce(passed)
        if recorded:
            PrecisionDebugger.stop()
            PrecisionDebugger.step()
        found.append([value.asnumpy().tolist() for value in (summed, passed, later, sums)] + results)
    return found


answer = {"communication": communicate()}
for level in ("L1", "L0", "mix", "debug"):
    for rank in ([], [0], [1], [5]):
        run(f"{level}_{rank[0] if rank else 'all'}", level, rank)
save("saved", "x", x)
step()
ms.set_context(mode=ms.GRAPH_MODE)
run("L2_1", "L2", [1])  # before anything else is compiled: MindSpore reads its settings once
run("static_0", "L0", [0])
answer.update(rank=communication.get_rank(), in_node=communication.get_local_rank())
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
