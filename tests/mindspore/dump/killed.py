"""Records half a step, waits a second, and is killed. Says before what importing msprobe has brought along."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time

import mindspore  # noqa: F401

before = set(sys.modules)
importlib.import_module("msprobe.mindspore")
with open(sys.argv[1], "w") as file:
    json.dump(sorted({name for name in set(sys.modules) - before if not name.startswith("msprobe")}), file)

Mlp, data, made = (getattr(importlib.import_module("mindspore_nets"), name) for name in ("Mlp", "data", "made"))
PrecisionDebugger = importlib.import_module("msprobe.mindspore").PrecisionDebugger
PrecisionDebugger(level="mix", dump_path="dump")
net = made(Mlp)
PrecisionDebugger.start(net)
net(data()[0]).asnumpy()
time.sleep(1.2)
os.kill(os.getpid(), signal.SIGKILL)
