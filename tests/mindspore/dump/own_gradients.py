"""Records nets whose cells' gradients are easily got wrong, and differentiates every cell again, alone: both must agree.

Arguments: the file for the answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore_nets import data, filled

from msprobe.mindspore import PrecisionDebugger


class Residual(nn.Cell):
    """What comes in is used three times, once by a layer whose kernel always gives a gradient."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm((6,)), nn.Dense(6, 6)

    def construct(self, x):
        return x + self.fc(self.norm(x)) + x * 2


class Blocks(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = Residual(), Residual(), nn.Dense(6, 3)

    def construct(self, x):
        return self.out(self.second(self.first(x)))


class Scaled(nn.Cell):
    """Nothing that is trained stands before the block."""

    def __init__(self):
        super().__init__()
        self.block, self.out = Residual(), nn.Dense(6, 3)

    def construct(self, x):
        return self.out(self.block(x * 2))


class States(nn.Cell):
    """The last state is given back, and stands in the sequence too; the one of the second layer is used, the other is not."""

    def __init__(self):
        super().__init__()
        self.gru, self.lstm, self.out = nn.GRU(6, 5, batch_first=True), nn.LSTM(5, 4, batch_first=True), nn.Dense(4, 3)

    def construct(self, x):
        sequence, _ = self.gru(x.reshape(2, 2, 6))
        sequence, (hidden, _) = self.lstm(sequence)
        return self.out(sequence.reshape(4, 4)) + hidden.sum()


class Both(nn.Cell):
    """Gives back a value and what it goes on to make of it; and what came in."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(6, 6)

    def construct(self, x):
        y = self.fc(x)
        return y, ops.tanh(y) * y, x


class Outputs(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.both, self.out = nn.Dense(6, 6), Both(), nn.Dense(6, 3)

    def construct(self, x):
        y, z, _ = self.both(self.first(x))
        return self.out(y * 3 + z)


class Attention(nn.Cell):
    """`nn.MultiheadAttention` has a `__call__` of its own, which goes on to that of Cell."""

    def __init__(self):
        super().__init__()
        self.first, self.attention, self.out = nn.Dense(6, 6), nn.MultiheadAttention(6, 2, batch_first=True), nn.Dense(6, 3)

    def construct(self, x):
        x = self.first(x).reshape(2, 2, 6)
        y, _ = self.attention(x, x * 2, x + 1)
        return self.out(y.reshape(4, 6))


class Hooked(nn.Cell):
    """The user has hooks on it, which change nothing."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Dense(6, 6), nn.Dense(6, 3)
        self.seen = []
        self.out.register_backward_hook(self.looks)
        self.first.register_forward_hook(lambda cell, inputs, output: output * 1)

    def looks(self, cell, from_input, from_output):
        self.seen.append(len(from_output))

    def construct(self, x):
        return self.out(self.first(x))


def tensors(value):
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors(item)] if isinstance(value, list | tuple) else []


def read(place, record):
    return None if record is None else Tensor(np.load(place / "dump_tensor_data" / record["data_name"]))


def leaves(records):
    found = []
    for record in records:
        found += leaves(record) if isinstance(record, list) else [record]
    return found


def alone(cell, arguments, received):
    """The gradients of a cell's tensors, from what its outputs received; an argument may be None."""
    given = [number for number, argument in enumerate(arguments) if argument is not None]

    def weighted(*values):
        full = list(arguments)
        for number, value in zip(given, values, strict=True):
            full[number] = value
        total = Tensor(0.0)
        for output, gradient in zip(tensors(cell(*full)), received, strict=True):
            if gradient is not None:
                total = total + (output * gradient).sum()
        return total

    found = ms.grad(weighted, tuple(range(len(given))))(*[arguments[number] for number in given])
    return found if isinstance(found, tuple) else (found,)


def record(kind, asks_for_input):
    """One recorded step; for each gradient of a cell's input how far it is from the truth, None where there is none."""
    name = f"{kind.__name__}{'_input' if asks_for_input else ''}"
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    PrecisionDebugger(level="mix", task="tensor", dump_path=name)
    net = filled(kind())
    PrecisionDebugger.start(net)
    step = ms.value_and_grad(lambda x: ops.square(net(x)).sum(), 0 if asks_for_input else None, net.trainable_params())
    step(data()[0])
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    (place,) = Path(name, "step0").iterdir()
    entries = json.loads((place / "dump.json").read_text())["data"]
    cells = dict(net.cells_and_names())
    answer = {}
    for entry, values in entries.items():
        if entry.startswith("Cell.") and ".backward." in entry:
            forward = entries[entry.replace(".backward.", ".forward.")]
            if any(isinstance(one, list) or (one and one["type"] != "mindspore.Tensor") for one in forward["input_args"]):
                continue  # lists and numbers among them
            arguments = [read(place, one) for one in forward["input_args"]]
            truth = alone(cells[entry[5:].rsplit(".", 3)[0]], arguments, [read(place, one) for one in leaves(values["input"])])
            answer[entry] = []
            for one, expected in zip(values["output"], truth, strict=False):
                found, expected = read(place, one), expected.asnumpy()
                far = None if found is None else float(np.abs(found.asnumpy() - expected).max() / np.abs(expected).max())
                answer[entry].append(far)
    return {"far": answer, "entries": list(entries), "unread": json.loads((place / "meta.json").read_text()).get("unread")}


answers = {}
for kind in (Blocks, Scaled, States, Outputs, Attention, Hooked):
    for asks_for_input in (False, True):
        answers[f"{kind.__name__}{'_input' if asks_for_input else ''}"] = record(kind, asks_for_input)
Path(sys.argv[1]).write_text(json.dumps(answers))
