"""What MindSpore's TensorDump does in graphs on Ascend, on a CPU: `{path}_{dtype}_{n}.npy`, n counting all files together, step and rank in
braces. Imported in a process with MindSpore only."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
from mindspore import jit_class, ops

from msprobe.mindspore import device
from msprobe.mindspore.static_save.taps import python_op


class Written:
    """The files of a process."""

    def __init__(self):
        self.lock = threading.Lock()
        self.number = self.step = 0

    def write(self, path, dtype, array):
        with self.lock:
            if path == "<tensordump-update-step>":
                self.step += 1
                return
            number, self.number = self.number, self.number + 1
            file = Path(f"{path.format(step=f'step{self.step}', rank='rank0')}_{dtype}_{number}.npy")
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, array.astype(np.float32) if dtype == "bfloat16" else array)


WRITTEN = Written()


@jit_class
class Write:
    def __init__(self, path):
        self.op = python_op(lambda dtype, array: WRITTEN.write(path, dtype, array))

    def __call__(self, x):
        return self.op(x)


@jit_class
class TensorDump:
    def __init__(self, input_output="out"):
        self.kind = input_output

    def __call__(self, path, x):
        return Write(path)(x)


def stand_in(target="Ascend"):
    """From here on graphs are taken to run on another device."""
    ops.TensorDump = TensorDump
    device.device_target = lambda: target
