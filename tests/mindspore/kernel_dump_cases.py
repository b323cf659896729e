"""Level L2 in graph mode: MindSpore's own dump on a CPU; run by test_kernel_dump.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")
section = {"list": ["name-regex(.*MatMul.*)"], "data_mode": ["output"], "file_format": "bin"}
Path("config.json").write_text(
    json.dumps({"task": "tensor", "dump_path": "./dump", "level": "L2", "step": [1], "rank": [0], "tensor": section}), encoding="utf-8"
)
os.environ["MS_ACL_DUMP_CFG_PATH"] = "/nowhere"
debugger = PrecisionDebugger("./config.json")
net = nn.SequentialCell(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
x = Tensor(np.ones((2, 3), np.float32))
for _ in range(3):
    debugger.start(net)
    net(x)
    debugger.stop()
    debugger.step()
answer = {
    "variable": os.environ.get("MINDSPORE_DUMP_CONFIG"),
    "other": os.environ.get("MS_ACL_DUMP_CFG_PATH"),
    "files": sorted(str(path.relative_to("dump")) for path in Path("dump").rglob("*.npy")),
    "here": os.getcwd(),
}
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
