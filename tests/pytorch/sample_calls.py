"""One call of nearly every kind that a script writes, in the order of the sample names_L1_all."""
# ruff: noqa: C416

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.functional import relu as imported_relu


def _iadd(z):
    z += 1
    return z


def _iadd_tensor(z):
    z += z.detach()
    return z


def _setitem(z):
    z[0] = 1
    return z


def _set_masked(z):
    z[z > 0] = 0
    return z


def sample_calls() -> Callable[[], dict[str, Callable[[], Any]]]:
    """Tensors are made at once; the function given back makes modules and calls (label -> call) and belongs into the recorded window."""
    torch.manual_seed(0)
    x = torch.randn(3, 3, requires_grad=True)
    y = torch.randn(3, 3, requires_grad=True)
    i = torch.randint(0, 3, (3,))

    def in_place(change: Callable[[torch.Tensor], Any]) -> Callable[[], Any]:
        z = (x * 1).detach().clone().requires_grad_() * 1
        return lambda: change(z)

    return lambda: _calls(x, y, i, in_place)


def _calls(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor, in_place: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    def mha_eval():
        with torch.no_grad():
            return mha2(x3, x3, x3)

    calls: dict[str, Callable[[], Any]] = {
        "x+y": lambda: x + y,
        "x+1": lambda: x + 1,
        "1+x": lambda: 1 + x,
        "x.add(y)": lambda: x.add(y),
        "torch.add(x,y)": lambda: torch.add(x, y),
        "x-y": lambda: x - y,
        "1-x": lambda: 1 - x,
        "x*y": lambda: x * y,
        "2*x": lambda: 2 * x,
        "x/y": lambda: x / y,
        "2/x": lambda: 2 / x,
        "x//2": lambda: x // 2,
        "x%2": lambda: x % 2,
        "2%x": lambda: 2 % x,
        "x**2": lambda: x**2,
        "2**x": lambda: 2**x,
        "x@y": lambda: x @ y,
        "torch.matmul": lambda: torch.matmul(x, y),
        "x.matmul": lambda: x.matmul(y),
        "torch.mm": lambda: torch.mm(x, y),
        "-x": lambda: -x,
        "abs(x)": lambda: abs(x),
        "x[0]": lambda: x[0],
        "x[i]": lambda: x[i],
        "x[...,1:2]": lambda: x[..., 1:2],
        "x[None]": lambda: x[None],
        "x.T": lambda: x.T,
        "x.t()": lambda: x.t(),
        "x.mT": lambda: x.mT,
        "x==y": lambda: x == y,
        "x>y": lambda: x > y,
        "x>=1": lambda: x >= 1,
        "x!=y": lambda: x != y,
        "x&y": lambda: (x > 0) & (y > 0),
        "~b": lambda: ~(x > 0),
        "x<<1": lambda: i << 1,
        "bool(x)": lambda: bool(x[0, 0] > 0),
        "float(x)": lambda: float(x[0, 0]),
        "int(x)": lambda: int(x[0, 0]),
        "x.item": lambda: x[0, 0].item(),
        "len(x)": lambda: len(x),
        "for in x": lambda: [k for k in x],
        "x.tolist": lambda: x.tolist(),
        "x.numpy": lambda: x.detach().numpy(),
        "if x": lambda: 1 if i[0] > 0 else 0,
        "x.shape": lambda: x.shape,
        "x.size()": lambda: x.size(),
        "x.view": lambda: x.view(9),
        "x.reshape": lambda: x.reshape(9),
        "x.to": lambda: x.to(torch.float64),
        "x.float": lambda: x.float(),
        "x.half": lambda: x.half(),
        "x.contiguous": lambda: x.t().contiguous(),
        "x.clone": lambda: x.clone(),
        "x.detach": lambda: x.detach(),
        "x.cpu": lambda: x.cpu(),
        "x.type": lambda: x.type(torch.float64),
        "x.type_as": lambda: x.type_as(y),
        "F.relu": lambda: F.relu(x),
        "torch.relu": lambda: torch.relu(x),
        "x.relu": lambda: x.relu(),
        "early_after": lambda: imported_relu(x),
        "F.relu_ip": in_place(lambda z: F.relu(z, inplace=True)),
        "torch.relu_": in_place(lambda z: torch.relu_(z)),
        "x.relu_": in_place(lambda z: z.relu_()),
        "F.relu_": in_place(lambda z: F.relu_(z)),
        "F.softmax": lambda: F.softmax(x, dim=1),
        "torch.softmax": lambda: torch.softmax(x, 1),
        "x.softmax": lambda: x.softmax(1),
        "F.gelu": lambda: F.gelu(x),
        "F.silu": lambda: F.silu(x),
        "F.linear": lambda: F.linear(x, y),
        "F.dropout": lambda: F.dropout(x, 0.5),
        "F.dropout0": lambda: F.dropout(x, 0.0),
        "F.layer_norm": lambda: F.layer_norm(x, (3,)),
        "F.embedding": lambda: F.embedding(i, x),
        "F.cross_entropy": lambda: F.cross_entropy(x, i),
        "F.mse_loss": lambda: F.mse_loss(x, y),
        "F.sdpa": lambda: F.scaled_dot_product_attention(x[None], y[None], y[None]),
        "F.normalize": lambda: F.normalize(x),
        "F.one_hot": lambda: F.one_hot(i),
        "F.pad": lambda: F.pad(x, (1, 1)),
        "F.interpolate": lambda: F.interpolate(x[None, None], scale_factor=2),
        "F.log_softmax": lambda: F.log_softmax(x, 1),
        "F.multi_margin": lambda: F.cosine_similarity(x, y),
        "z+=1": in_place(_iadd),
        "z+=t": in_place(_iadd_tensor),
        "z[0]=1": in_place(_setitem),
        "z[mask]=0": in_place(_set_masked),
        "z.add_": in_place(lambda z: z.add_(1)),
        "z.mul_": in_place(lambda z: z.mul_(2)),
        "z.copy_": in_place(lambda z: z.copy_(y)),
        "z.zero_": in_place(lambda z: z.zero_()),
        "z.masked_fill_": in_place(lambda z: z.masked_fill_(y > 0, 0)),
        "z.fill_": in_place(lambda z: z.fill_(0)),
        "aten.add": lambda: torch.ops.aten.add(x, y),
        "aten.add.Tensor": lambda: torch.ops.aten.add.Tensor(x, y),
        "aten.relu": lambda: torch.ops.aten.relu(x),
        "aten.relu.default": lambda: torch.ops.aten.relu.default(x),
        "_C._nn.gelu": lambda: torch._C._nn.gelu(x),
        "VF.relu": lambda: torch._VF.relu(x),
        "nn.LSTM": lambda: lstm(x[None]),
        "nn.GRU": lambda: gru(x[None]),
        "nn.RNN": lambda: rnn(x[None]),
        "nn.LSTMCell": lambda: lstmc(x),
        "torch.cat": lambda: torch.cat([x, y]),
        "torch.stack": lambda: torch.stack([x, y]),
        "torch.split": lambda: torch.split(x, 1),
        "x.split": lambda: x.split(1),
        "x.chunk": lambda: x.chunk(3),
        "x.unbind": lambda: x.unbind(),
        "torch.where": lambda: torch.where(x > 0, x, y),
        "torch.einsum": lambda: torch.einsum("ij,jk->ik", x, y),
        "torch.max": lambda: torch.max(x),
        "x.max(1)": lambda: x.max(1),
        "x.sum": lambda: x.sum(),
        "torch.sum": lambda: torch.sum(x),
        "x.mean": lambda: x.mean(),
        "x.topk": lambda: x.topk(2),
        "x.sort": lambda: x.sort(),
        "x.norm": lambda: x.norm(),
        "torch.norm": lambda: torch.norm(x),
        "x.std": lambda: x.std(),
        "x.cumsum": lambda: x.cumsum(0),
        "torch.randn": lambda: torch.randn(2),
        "torch.zeros": lambda: torch.zeros(2),
        "torch.tensor": lambda: torch.tensor([1.0]),
        "torch.arange": lambda: torch.arange(3),
        "torch.empty": lambda: torch.empty(2),
        "zeros_like": lambda: torch.zeros_like(x),
        "randn_like": lambda: torch.randn_like(x),
        "full": lambda: torch.full((2,), 1.0),
        "from_numpy": lambda: torch.from_numpy(numpy.ones(2)),
        "fft": lambda: torch.fft.fft(x),
        "linalg.norm": lambda: torch.linalg.norm(x),
        "linalg.inv": lambda: torch.linalg.inv(x),
        "special.expit": lambda: torch.special.expit(x),
        "torch.sigmoid": lambda: torch.sigmoid(x),
        "F.sigmoid": lambda: F.sigmoid(x),
        "F.tanh": lambda: F.tanh(x),
        "torch.bmm": lambda: torch.bmm(x[None], y[None]),
        "torch.addmm": lambda: torch.addmm(x, x, y),
        "baddbmm": lambda: torch.baddbmm(x[None], x[None], y[None]),
        "x.gather": lambda: x.gather(0, i[None]),
        "x.scatter": lambda: x.scatter(0, i[None], 1.0),
        "x.scatter_add_": in_place(lambda z: z.scatter_add_(0, i[None], y)),
        "x.index_select": lambda: x.index_select(0, i),
        "x.expand": lambda: x[0:1].expand(3, 3),
        "x.repeat": lambda: x.repeat(2, 1),
        "x.permute": lambda: x.permute(1, 0),
        "x.transpose": lambda: x.transpose(0, 1),
        "x.unsqueeze": lambda: x.unsqueeze(0),
        "x.flatten": lambda: x.flatten(),
        "torch.outer": lambda: torch.outer(x[0], y[0]),
        "torch.multinomial": lambda: torch.multinomial(torch.ones(3), 1),
        "torch.bernoulli": lambda: torch.bernoulli(torch.ones(2)),
        "x.uniform_": lambda: torch.empty(2).uniform_(),
        "nn.Linear": lambda: lin(x),
        "nn.ReLU": lambda: nn.ReLU()(x),
        "nn.ReLUip": in_place(lambda z: nn.ReLU(inplace=True)(z)),
        "nn.Softmax": lambda: nn.Softmax(1)(x),
        "nn.LayerNorm": lambda: ln(x),
        "nn.BatchNorm1d": lambda: bn(x),
        "nn.Conv1d": lambda: conv(x[None]),
        "nn.Embedding": lambda: emb(i),
        "nn.MHA": lambda: mha(x3, x3, x3),
        "nn.MHA eval": lambda: mha_eval(),
        "nn.CE": lambda: nn.CrossEntropyLoss()(x, i),
        "nn.Sigmoid": lambda: nn.Sigmoid()(x),
        "nn.GELU": lambda: nn.GELU()(x),
        "nn.MaxPool2d": lambda: nn.MaxPool2d(2)(x[None, None]),
        "F.max_pool2d": lambda: F.max_pool2d(x[None, None], 2),
        "nn.Dropout": lambda: nn.Dropout(0.5)(x),
        "nn.RMSNorm": lambda: nn.RMSNorm(3)(x),
        "clip_grad": lambda: nn.utils.clip_grad_norm_([x], 1.0),
        "EmbBag": lambda: nn.EmbeddingBag(3, 3)(i[None]),
        "kwself": lambda: torch.add(input=x, other=y),
        "kwinput": lambda: F.relu(input=x),
        "torch.Tensor.add(self=)": lambda: torch.Tensor.add(x, other=y),
        "out=": lambda: torch.add(x.detach(), 1, out=torch.empty(3, 3)),
    }
    lstm, gru, rnn, lstmc = nn.LSTM(3, 4), nn.GRU(3, 4), nn.RNN(3, 4), nn.LSTMCell(3, 4)
    lin, ln, bn, conv, emb = nn.Linear(3, 3), nn.LayerNorm(3), nn.BatchNorm1d(3), nn.Conv1d(3, 3, 1), nn.Embedding(3, 3)
    mha = nn.MultiheadAttention(4, 2)
    x3 = torch.randn(2, 1, 4, requires_grad=True)
    mha2 = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    return calls
