"""Small nets for the tests that run in a process with MindSpore; imported there only."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

Tensor(np.ones(1, np.float32)) * 2  # the first operation with a Python scalar may fail with numpy 2: MindSpore's own fault


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.second = nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 3)

    def construct(self, x):
        return self.second(self.act(self.first(x)))


class Convolution(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2, pad_mode="same", has_bias=True)
        self.flat, self.fc = nn.Flatten(), nn.Dense(12, 3)

    def construct(self, x):
        return self.fc(self.flat(ops.relu(self.conv(x.reshape(4, 1, 2, 3)))))


class Shared(nn.Cell):
    """One cell called twice, one tensor used three times."""

    def __init__(self):
        super().__init__()
        self.same, self.out, self.mul = nn.Dense(6, 6), nn.Dense(6, 3), ops.Mul()

    def construct(self, x):
        y = self.same(x)
        z = self.same(ops.tanh(y))
        return self.out(self.mul(y, z) + y * y)


class InPlace(nn.Cell):
    """Values that are changed where they are."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Dense(6, 6), nn.Dense(6, 3)

    def construct(self, x):
        y = self.first(x)
        z = y * 1.5
        z.add_(y)
        z.mul_(0.5)
        z[0] = 2.0
        z += y
        return self.out(z)


class Inner(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(6, 6)

    def construct(self, pair, scale=None, *, names=None):
        first, second = pair["a"], pair["b"][0]
        y = self.fc(first) + second
        return {"sum": y, "parts": [y * scale, (names, 3)]}, y


class Containers(nn.Cell):
    """Dicts, lists and keywords go in and out of a cell."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = Inner(), nn.Dense(6, 3)

    def construct(self, x):
        result, y = self.inner({"a": x, "b": [x * 2]}, scale=Tensor(2.0), names="n")
        return self.out(result["parts"][0] + result["sum"] + y)


class Squared(nn.Cell):
    """A backward written by hand."""

    def construct(self, x):
        return x * x

    def bprop(self, x, out, dout):
        return (dout * x * 3,)


class ByHand(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.square, self.out = nn.Dense(6, 6), Squared(), nn.Dense(6, 3)

    def construct(self, x):
        return self.out(self.square(self.first(x)))


class Compiled(nn.Cell):
    @ms.jit
    def construct(self, x):
        return ops.tanh(x) * 2 + ops.sin(x)


@ms.jit
def compiled_function(x, y):
    return ops.relu(x) * y


class WithJit(nn.Cell):
    """Parts of it are compiled."""

    def __init__(self):
        super().__init__()
        self.first, self.jit, self.out = nn.Dense(6, 6), Compiled(), nn.Dense(6, 3)

    def construct(self, x):
        y = self.first(x)
        return self.out(compiled_function(self.jit(y), y))


class JitWithWeights(nn.Cell):
    """The weights are used in compiled code only."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(6, 3)

    @ms.jit
    def construct(self, x):
        return self.fc(x)


class Split(nn.Cell):
    """Results of several tensors, one of which nobody uses; a part without gradients; views."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Dense(6, 6), nn.Dense(3, 3)
        self.scale = Parameter(Tensor(np.linspace(0.5, 1.5, 3).astype(np.float32)), name="scale")

    def construct(self, x):
        a, b = mint.split(self.first(x), 3, dim=1)
        c, _ = mint.split(self.first(x), 3, dim=1)
        return self.out(a * self.scale + ops.stop_gradient(b) + mint.transpose(mint.transpose(c, 0, 1), 0, 1))


class Half(nn.Cell):
    """Numbers of two bytes."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Dense(6, 6), nn.Dense(6, 3)

    def construct(self, x):
        y = self.first(x).astype(ms.bfloat16)
        y = (y * y).astype(ms.float16) + 1
        return self.out(y.astype(ms.float32))


class Dropped(nn.Cell):
    """Random numbers are drawn."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.out = nn.Dense(6, 6), nn.Dropout(p=0.3), nn.Dense(6, 3)
        self.blocks = nn.SequentialCell([nn.Dense(6, 6), nn.Sigmoid()])

    def construct(self, x):
        return self.out(self.blocks(self.drop(self.first(x))))


class Recurrent(nn.Cell):
    """States go from step to step."""

    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(3, 5, batch_first=True, bidirectional=True), nn.Dense(10, 3)

    def construct(self, x):
        sequence, (hidden, _) = self.rnn(x.reshape(4, 2, 3))
        return self.out(sequence[:, 1]) + hidden.mean()


class Tied(nn.Cell):
    """One weight, two cells; attention with a mask, an identity beside it, parts that run again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(6, 6), nn.Dense(6, 6, has_bias=False)
        self.last.weight = self.first.weight
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.again = nn.Dense(6, 6)
        self.again.recompute()

    def construct(self, x):
        x = self.first(x).reshape(2, 2, 6)
        y, _ = self.attention(x, x, x, attn_mask=Tensor([[False, True], [False, False]]))
        return self.last(self.again((x + y).reshape(4, 6)))[:, :3]


class Converted(nn.Cell):
    """Cells that compute in other dtypes."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Dense(6, 6), nn.Dense(6, 3)
        self.half, self.brain = nn.Tanh().to_float(ms.float16), Squared().to_float(ms.bfloat16)

    def construct(self, x):
        return self.out(self.brain(self.half(self.first(x))).astype(ms.float32))


class Hooked(nn.Cell):
    """The user's own hooks change values and gradients."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Dense(6, 6), nn.Dense(6, 6), nn.Dense(6, 3)
        self.first.register_forward_hook(lambda cell, inputs, output: output * 1.5)
        self.second.register_forward_pre_hook(lambda cell, inputs: (inputs[0] + 1,))
        self.second.register_backward_hook(lambda cell, from_input, from_output: (from_input[0] * 3,))
        self.out.register_backward_pre_hook(lambda cell, from_output: (from_output[0] * 0.5,))
        self.first.weight.register_hook(lambda gradient: gradient * 0.25)

    def construct(self, x):
        y = self.first(x)
        y.register_hook(lambda gradient: gradient * 2)
        return self.out(self.second(y))


NETS = [
    Mlp,
    Convolution,
    Shared,
    InPlace,
    Containers,
    ByHand,
    WithJit,
    JitWithWeights,
    Split,
    Half,
    Dropped,
    Recurrent,
    Tied,
    Converted,
    Hooked,
]


def made(kind):
    """A net with the same weights every time, in training mode."""
    ms.set_seed(3)
    return filled(kind())


def filled(net):
    """The net with the same weights every time, in training mode."""
    random = np.random.RandomState(7)
    net.set_train()
    for parameter in net.get_parameters():
        if parameter.name != "scale":
            parameter.set_data(Tensor((random.randn(*parameter.shape) * 0.4).astype(np.float32)))
    return net


def data(step=0):
    """Inputs of 4 x 6 and targets of 4 x 3."""
    random = np.random.RandomState(11 + step)
    return Tensor(random.randn(4, 6).astype(np.float32)), Tensor(random.randn(4, 3).astype(np.float32))
