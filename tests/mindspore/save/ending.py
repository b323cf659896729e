"""How steps end when something goes wrong, or comes too late; run by test_ending.py in MindSpore's interpreter."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

from msprobe.mindspore import PrecisionDebugger
from msprobe.mindspore.debug_save.step import SavedStep
from msprobe.mindspore.dump.parameter_gradients import ParameterGradients
from msprobe.mindspore.dump.step_record import StepRecord
from msprobe.mindspore.dump.window import CompilationGuard, Window
from msprobe.mindspore.static_dump.starting import StaticDump

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
_ = Tensor(np.ones(1, np.float32)) * 2
answer = {}
x = Tensor(np.arange(6).reshape(2, 3).astype(np.float32) / 8)


def started(name, level, **settings):
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    settings = {"task": "statistics", "dump_path": name, "level": level, **settings}
    Path(f"{name}.json").write_text(json.dumps(settings), encoding="utf-8")
    print(f"--- {name}", file=sys.stderr, flush=True)
    return PrecisionDebugger(f"{name}.json")


def late():
    """step() comes before the backward pass has."""
    debugger = started("late", "debug")
    kept = []

    def forward(x):
        y = x * 3
        PrecisionDebugger.save(y, "y")
        PrecisionDebugger.save([x, y], "both")
        if not kept:
            debugger.step()
        return (y * y).sum()

    kept.append(ms.grad(forward)(x))
    kept.append(ms.grad(forward)(x))
    debugger.step()
    answer["late_same"] = [kept[0].asnumpy().tobytes() == kept[1].asnumpy().tobytes()]


def last():
    """Only the first step is selected; the value is saved in another file, which knows nothing of the debugger but its class."""
    Path("elsewhere.py").write_text(
        "from msprobe.mindspore import PrecisionDebugger\n\n\ndef keep(value):\n    PrecisionDebugger.save(value, 'elsewhere')\n",
        encoding="utf-8",
    )
    sys.path.insert(0, "")
    from elsewhere import keep

    started("last", "debug", step=[0])
    for _ in range(2):
        keep(x)
        PrecisionDebugger.step()
    answer["last"] = [sorted(json.loads(path.read_text())["data"]) for path in Path("last").rglob("debug.json")]


def unsaved():
    started("unsaved", "debug")
    PrecisionDebugger._at_exit(PrecisionDebugger._session)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(3, 2)

    def construct(self, x):
        return ops.relu(self.fc(x)).sum()


def planted(name, owner, method, level):
    """The first of three steps ends with an error of ours in it."""
    debugger = started(name, level)
    net = Net()
    good = getattr(owner, method)

    def bad(*args):
        setattr(owner, method, good)
        raise RuntimeError(f"planted in {name}")

    setattr(owner, method, bad)
    losses = []
    for _ in range(3):
        debugger.start(net if level == "mix" else None)

        def forward(x):
            y = net(x)
            if level == "debug":
                debugger.save(y, "y")
            return y

        losses.append(ms.value_and_grad(forward, None, net.trainable_params())(x)[0].asnumpy().tobytes().hex())
        debugger.stop()
        debugger.step()
    session = PrecisionDebugger._session
    answer[name] = {
        "losses": len(set(losses)),
        "number": session.number,
        "open": [session.step is None, session.saving.step is None, session.window is None, session.guard.step is None],
        "data": {path.parent.parent.name: sorted(json.loads(path.read_text())["data"]) for path in Path(name).rglob("d*.json")},
        "clean": not any("__wrapped__" in vars(function) for function in (ops.relu, nn.Cell.__call__)),
    }


def of_the_users():
    """An operation of the user's fails after it was started: whoever waits for it must hand that on."""
    debugger = started("users", "debug")
    debugger.save(x, "x")
    mint.norm(x)
    time.sleep(0.3)  # more than enough for it to have failed; without, it may fail here
    try:
        debugger.step()
    except Exception as error:
        answer["users"] = [type(error).__name__, "LinalgVectorNorm" in str(error)]
    answer["users_after"] = (x + 1).asnumpy().sum().item()


late()
last()
unsaved()
planted("saved_close", SavedStep, "close", "debug")
planted("static", StaticDump, "end_step", "debug")
planted("static_mix", StaticDump, "end_step", "mix")
planted("window", Window, "close", "mix")
planted("guard", CompilationGuard, "close", "mix")
planted("gradients", ParameterGradients, "close", "mix")
planted("record", StepRecord, "close", "mix")
of_the_users()
Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
