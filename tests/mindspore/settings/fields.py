"""Fields of the configuration, each in a run of its own; run by test_settings.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore_nets import Mlp, data, made

from msprobe.mindspore import PrecisionDebugger

answer, told, bits = {}, [], {"file_format": "bin"}
x = data()[0]
halves = Tensor(np.full((3, 6), 300, np.float16))  # the sum of squares is beyond two bytes
complexes = Tensor(np.array([3 + 4j, 1j], np.complex64))


class Keep(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            told.append(record.getMessage())


logging.getLogger("msprobe").addHandler(Keep())


class Same(nn.Cell):
    def construct(self, x):
        return x


class Of(nn.Cell):
    """A net, something of two bytes, something complex."""

    def __init__(self):
        super().__init__()
        self.net, self.same = made(Mlp), Same()

    def construct(self, x, halves, complexes):
        return self.net(x).sum() + ops.relu(self.same(halves)).sum() + ops.abs(self.same(complexes)).sum()


class InGraph(nn.Cell):
    def __init__(self):
        super().__init__()
        self.net, self.same = made(Mlp), Same()

    def construct(self, x, halves):
        return self.net(x).sum() + self.same(halves).sum()


def run(name, level, task="statistics", section=None, graph=False, **top):
    session = PrecisionDebugger._session
    if session is not None:
        session.stop()
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    told.clear()
    settings = {"task": task, "dump_path": name, "level": level, task: section or {}, **top}
    Path(f"{name}.json").write_text(json.dumps(settings), encoding="utf-8")
    debugger = PrecisionDebugger(f"{name}.json")
    net, inputs = (InGraph(), (x, halves)) if graph else (Of(), (x, halves, complexes))
    for _ in range(2 if "async_dump" in top or section == bits else 1):
        if level == "debug":
            debugger.save([x, halves, complexes], "values")
        else:
            debugger.start(net)
            if graph:  # forward alone compiles in a third of the time
                net(*inputs).asnumpy()
            else:
                ms.value_and_grad(net, None, net.trainable_params())(*inputs)[0].asnumpy()
            debugger.stop()
        debugger.step()
    (place,) = Path(name, "step0").iterdir()
    document = place / ("debug.json" if level == "debug" else "dump.json")
    answer[name] = {
        "data": json.loads(document.read_text(encoding="utf-8"))["data"],
        "files": sorted(path.name for path in place.rglob("dump_tensor_data/*")),
        "beside": sorted(path.name for path in place.iterdir()),
        "told": list(told),
    }


for level in ("L0", "L1", "mix"):
    run(f"{level}_plain", level)
    run(f"{level}_async", level, async_dump=True)
    run(f"{level}_list", level, "tensor", {"list": ["relu", "Mlp"]})
    run(f"{level}_async_list", level, "tensor", {"list": ["relu", "Mlp"]}, async_dump=True)
    run(f"{level}_high", level, precision="high")
    run(f"{level}_low", level, precision="low")
    run(f"{level}_bare", level, extra_info=False)
run("L0_tensor_list", "L0", section={"tensor_list": ["first"]})
run("L1_tensor_list", "L1", section={"tensor_list": ["relu"]})
for level in ("L1", "debug"):
    run(f"{level}_bin", level, "tensor", bits)
ms.set_context(mode=ms.GRAPH_MODE)
run("static_plain", "L0", graph=True)
run("static_high", "L0", graph=True, precision="high")
run("static_low", "L0", graph=True, precision="low")
run("static_bare", "L0", graph=True, extra_info=False)
run("static_async", "L0", graph=True, async_dump=True)
run("static_bin", "L0", "tensor", bits, graph=True)
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
