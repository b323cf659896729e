"""Small nets that are compiled as a whole, for the tests that run in a process with MindSpore; imported there only."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

WIDTH = 8


def dense():
    return nn.Dense(WIDTH, WIDTH)


class Gate(nn.Cell):
    """Uses what it is given twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b = dense(), dense()

    def construct(self, x):
        return ops.tanh(self.a(x)) * self.b(x)


class Attention(nn.Cell):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = dense(), dense(), dense()

    def construct(self, x):
        return ops.matmul(ops.softmax(ops.matmul(self.q(x), self.k(x).T) / 3, -1), self.v(x))


class Layers(nn.Cell):
    """A sequence; convolution, pooling, normalisation."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3, pad_mode="same", has_bias=True), nn.BatchNorm2d(2)
        self.rest = nn.SequentialCell([nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(32, WIDTH), nn.GELU()])

    def construct(self, x):
        return self.rest(self.norm(self.conv(ops.matmul(x[:1].T, x[:1]).reshape(1, 1, WIDTH, WIDTH)))) + x


class Residual(nn.Cell):
    def __init__(self):
        super().__init__()
        self.f, self.g, self.act = dense(), dense(), nn.ReLU()

    def construct(self, x):
        x = x + self.f(x)
        return self.act(x) + self.g(x) + x


class Transformer(nn.Cell):
    """Normalised before."""

    def __init__(self):
        super().__init__()
        self.attention, self.gate = Attention(), Gate()
        self.before, self.after = nn.LayerNorm((WIDTH,)), nn.LayerNorm((WIDTH,))

    def construct(self, x):
        x = x + self.attention(self.before(x))
        return x + self.gate(self.after(x))


class Order(nn.Cell):
    """What is computed first is used last."""

    def __init__(self):
        super().__init__()
        self.d0, self.d1, self.d2, self.d3 = dense(), dense(), dense(), dense()

    def construct(self, x):
        x = self.d0(x)
        a, b, c = self.d1(x), self.d2(x), self.d3(x)
        return b * c + a


class Tied(nn.Cell):
    """Weights that are used several times, and by two cells."""

    def __init__(self):
        super().__init__()
        self.table = Parameter(Tensor(np.ones((WIDTH, WIDTH), np.float32)), name="table")
        self.same, self.other = dense(), dense()
        self.other.weight = self.same.weight

    def construct(self, x):
        y = self.same(ops.matmul(x, self.table))
        z = self.same(ops.tanh(y))
        return ops.matmul(self.other(y * z), self.table.T) + self.same(z)


class Halved(nn.Cell):
    def construct(self, x):
        return ops.mul(x, ops.cast(0.5, x.dtype))


class Short(nn.Cell):
    """bfloat16 and float16 go in and out of cells."""

    def __init__(self):
        super().__init__()
        self.first, self.half, self.act, self.out = dense(), Halved(), nn.Sigmoid(), dense()

    def construct(self, x):
        y = self.half(self.first(x).astype(ms.bfloat16))
        return self.out(self.act(y.astype(ms.float16)).astype(ms.float32))


class Branches(nn.Cell):
    """Loops and branches; which branch is taken is known when the graph runs."""

    def __init__(self):
        super().__init__()
        self.again, self.act = dense(), nn.ReLU()
        self.blocks = nn.CellList([dense() for _ in range(3)])

    def construct(self, x):
        for block in self.blocks:
            x = self.act(block(x)) + x
        i = 0
        while i < 2:
            x = self.again(x) + x
            i += 1
        if x.sum() > 0:
            x = self.again(x)
        else:
            x = self.act(x)
        return x


class Loop(nn.Cell):
    """How often it turns is known when the graph runs."""

    def __init__(self):
        super().__init__()
        self.again = dense()

    def construct(self, x):
        i = Tensor(0, ms.int32)
        while i < 3:
            x = ops.tanh(self.again(x)) + ops.sin(x)
            i = i + 1
        return x


class Recomputed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.inner, self.out = dense(), Residual(), dense()
        self.inner.recompute()
        self.out.recompute()

    def construct(self, x):
        return self.out(ops.tanh(self.inner(self.first(x))))


class Dropped(nn.Cell):
    """Random numbers are drawn, and running means change."""

    def __init__(self):
        super().__init__()
        self.first, self.drop, self.norm, self.out = dense(), nn.Dropout(p=0.3), nn.BatchNorm1d(WIDTH), dense()

    def construct(self, x):
        return self.out(self.norm(self.drop(self.first(x))))


class Keyword(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = dense()

    def construct(self, pair, factor, *, scale=None, names=None):
        h = self.a(pair[0]) * factor
        return {"scaled": h * scale, "list": [ops.tanh(pair[1])]}, pair[1] + 1


class Containers(nn.Cell):
    """Dicts, lists and keywords go in and out of a cell."""

    def __init__(self):
        super().__init__()
        self.first, self.inner = dense(), Keyword()

    def construct(self, x):
        result, more = self.inner((self.first(x), x * 2), 2, scale=ops.sin(x), names="n")
        return result["scaled"] * result["list"][0] + more


class Keyed(nn.Cell):
    """Cells in dicts, the last of a list; integers go into a cell, None too."""

    def __init__(self):
        super().__init__()
        self.parts = nn.CellDict({"first": dense(), "act": nn.Tanh()})
        self.blocks = nn.CellList([dense(), dense()])
        self.masked = Masked()

    def construct(self, x):
        x = self.parts["first"](x)
        for part in self.parts.values():
            x = part(x) + x
        return self.masked(self.blocks[-1](self.blocks[0](x)), x > 0, scale=None)


class Masked(nn.Cell):
    def construct(self, x, mask, scale=None, other=None):
        return ops.where(mask, x, ops.zeros_like(x))


class RunTime(nn.Cell):
    """A branch that is decided when the graph runs; there is another one."""

    def __init__(self):
        super().__init__()
        self.first, self.never, self.taken = dense(), dense(), dense()

    def construct(self, x):
        x = self.first(x)
        if x.sum() > 1e6:
            x = self.never(x)
        else:
            x = self.taken(x)
        return ops.tanh(x)


class Stopped(nn.Cell):
    """No gradient goes into one of the cells: MindSpore does not compile a hook on its parameters."""

    def __init__(self):
        super().__init__()
        self.first, self.fixed, self.out = dense(), dense(), dense()

    def construct(self, x):
        x = self.first(x)
        return self.out(ops.stop_gradient(self.fixed(x))) + x


class PassedOn(nn.Cell):
    """Hands on whatever it is given, as the cells do that mixed precision puts around a network."""

    def __init__(self):
        super().__init__()
        self.inner = Order()

    def construct(self, *args, **kwargs):
        return ops.tanh(self.inner(*args, **kwargs))


class Split(nn.Cell):
    """A cell uses twice what is used before it, too: no tap can keep the order of that sum."""

    def __init__(self):
        super().__init__()
        self.first, self.beside, self.gate = dense(), dense(), Gate()

    def construct(self, x):
        x = self.first(x)
        beside = self.beside(x)
        return beside + self.gate(x)


class Both(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = dense()

    def construct(self, x):
        h = self.a(x)
        return h, ops.tanh(h) * ops.sin(h)


class GoesOn(nn.Cell):
    """A cell goes on using one of its results."""

    def __init__(self):
        super().__init__()
        self.both = Both()

    def construct(self, x):
        h, more = self.both(x)
        return h * more + ops.cos(h)


class Siamese(nn.Cell):
    """One cell, three times, in no order that the values tell."""

    def __init__(self):
        super().__init__()
        self.first, self.same = dense(), dense()

    def construct(self, x):
        x = self.first(x)
        a, b, c = self.same(x), self.same(x * 2), self.same(x)
        return b * c + a


def made(kind):
    """A net with the same weights every time, in training mode."""
    ms.set_seed(3)
    random = np.random.RandomState(7)
    net = kind()
    net.set_train()
    for parameter in net.get_parameters():
        if "moving" not in parameter.name:
            parameter.set_data(Tensor((random.randn(*parameter.shape) * 0.4).astype(np.float32)))
    return net


def data(step):
    """Inputs and targets."""
    random = np.random.RandomState(11 + step)
    return tuple(Tensor(random.randn(WIDTH, WIDTH).astype(np.float32)) for _ in range(2))


def train(kind, debugger=None, steps=2):
    """Losses, gradients and parameters of each step."""
    net = made(kind)
    loss = nn.MSELoss()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)

    def forward(x, y):
        return loss(net(x), y)

    step = ms.value_and_grad(forward, 0, net.trainable_params())
    found = []
    for number in range(steps):
        x, y = data(number)
        if debugger is not None:
            debugger.start(net)
        value, (of_x, gradients) = step(x, y)
        optimizer(gradients)
        if debugger is not None:
            debugger.stop()
            debugger.step()
        found += [tensor.asnumpy() for tensor in (value, of_x, *gradients, *net.get_parameters())]
    return found
