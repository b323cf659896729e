"""PrecisionDebugger.save in PyNative; run by test_debug_save.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
_ = Tensor(np.ones(1, np.float32)) * 2
debugger = PrecisionDebugger(task="tensor", dump_path="./dump", level="debug")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = ms.Parameter(Tensor(np.arange(6).reshape(3, 2).astype(np.float32)), name="w")
        self.saving = False

    def construct(self, x):
        z = ops.matmul(x, self.w)
        if self.saving:
            debugger.save(z, "z")
            debugger.save({"a": z, "b": [x + 1, 3]}, "nest")
            debugger.save(z, "z", save_backward=False)
            debugger.save(z, 3)
            debugger.save(z, "z", 1)
        return (z * z * z).sum()


net = Net()
x = Tensor(np.arange(6).reshape(2, 3).astype(np.float32) / 8)
forward = ms.value_and_grad(net, 0, net.trainable_params())
results = {}
for saving in (False, True):
    net.saving = saving
    loss, (of_x, of_weights) = forward(x)
    results[saving] = [value.asnumpy().tobytes().hex() for value in (loss, of_x, *of_weights)]
debugger.step()
z = x.asnumpy() @ net.w.asnumpy()
expected = 3 * z * z
(place,) = Path("dump/step0").iterdir()
files = {path.name: np.load(path).tolist() for path in sorted((place / "dump_tensor_data").iterdir())}
answer = {"same": results[False] == results[True], "files": files, "z": z.tolist(), "gradient": expected.tolist()}
answer["place"] = place.name.rstrip("0123456789")
answer["others"] = sorted(path.name for path in place.iterdir())
answer["debug"] = json.loads((place / "debug.json").read_text(encoding="utf-8"))
debugger.save(x, "later")  # the step is ended when the interpreter ends
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
