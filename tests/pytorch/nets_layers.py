"""Convolutional and recurrent networks, shared and tied weights, parametrizations, sparse gradients, lower precision."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from nets import Training, adam, net, sgd
from torch import nn
from torch.nn.utils import parametrizations, rnn


class _Block(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.down = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)) if stride > 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.down is None else self.down(x)
        return self.relu(out)


class _ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(_Block(4, 4, 1), _Block(4, 8, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


@net
def resnet(_: float) -> Training:
    """BatchNorm, in-place ReLU used twice in one forward, residual `+=`."""
    model = _ResNet()

    def forward_backward(_: int) -> torch.Tensor:
        loss = F.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.randint(5, (4,)))
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


@net
def convolutions(dropout: float) -> Training:
    """Other norms, transposed and grouped convolution, channels_last, in-place activations by function."""
    down = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1, groups=2), nn.GroupNorm(2, 8), nn.SiLU(inplace=True), nn.Dropout2d(dropout))
    up = nn.Sequential(nn.ConvTranspose2d(8, 4, 2, 2), nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(0.1, inplace=True))
    model = nn.Sequential(down, up).to(memory_format=torch.channels_last)

    def forward_backward(_: int) -> torch.Tensor:
        x = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
        y = F.avg_pool2d(F.hardtanh_(F.interpolate(model(x), scale_factor=2.0, mode="bilinear")), 2)
        loss = F.l1_loss(F.pad(y, (1, 1)), F.pad(x, (1, 1)))
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


class _Tagger(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True, dropout=dropout)
        self.tag = nn.Linear(10, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(self.embed(words))
        return self.tag(out)


@net
def lstm_tagger(dropout: float) -> Training:
    model = _Tagger(dropout)

    def forward_backward(_: int) -> torch.Tensor:
        words = torch.randint(20, (3, 6))
        loss = F.cross_entropy(model(words).flatten(0, 1), torch.randint(4, (18,)))
        loss.backward()
        return loss

    return Training(model, adam(model), forward_backward)


class _Recurrent(nn.Module):
    """Packed sequences, cells in a loop, hidden state carried from one call to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 6)
        self.cell = nn.LSTMCell(6, 6)
        self.carried: torch.Tensor | None = None

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed, hidden = self.gru(rnn.pack_padded_sequence(x, lengths), self.carried)
        self.carried = hidden.detach()
        out, _ = rnn.pad_packed_sequence(packed)
        state = (torch.zeros(3, 6), torch.zeros(3, 6))
        for part in out:
            state = self.cell(part, state)
        return state[0] + hidden[0]


@net
def recurrent_cells(_: float) -> Training:
    model = _Recurrent()

    def forward_backward(_: int) -> torch.Tensor:
        loss = model(torch.randn(4, 3, 4), torch.tensor([4, 3, 1])).tanh().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return loss

    return Training(model, sgd(model), forward_backward)


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.mix = nn.Linear(6, 6)
        self.out = nn.Linear(6, 12, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(F.gelu(self.mix(self.embed(words))))


@net
def tied_weights(_: float) -> Training:
    model = _Tied()

    def forward_backward(_: int) -> torch.Tensor:
        words = torch.randint(12, (2, 5))
        loss = F.cross_entropy(model(words[:, :-1]).reshape(-1, 12), words[:, 1:].reshape(-1))
        loss.backward()
        return loss

    return Training(model, adam(model), forward_backward)


class _Shared(nn.Module):
    """One layer called three times, once inside another module, and an Identity that hands its input through."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.again = nn.Sequential(nn.Identity(), self.layer, nn.Tanh())
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(self.layer(x)) + self.frozen(x)
        return self.again(y) * y


@net
def shared_modules(_: float) -> Training:
    model = _Shared()

    def forward_backward(_: int) -> torch.Tensor:
        loss = model(torch.randn(3, 6, requires_grad=True)).square().mean()
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


@net
def sparse_embedding(_: float) -> Training:
    words, bag, head = nn.Embedding(15, 4, sparse=True), nn.EmbeddingBag(15, 4, mode="sum", sparse=True), nn.Linear(4, 1)
    model = nn.ModuleList([words, bag, head])

    def forward_backward(_: int) -> torch.Tensor:
        picked = torch.randint(15, (3, 5))
        loss = head(words(picked).mean(1) * bag(picked.flatten(), torch.tensor([0, 4, 9]))).square().sum()
        loss.backward()
        return loss

    return Training(model, torch.optim.SGD(model.parameters(), lr=0.1), forward_backward)


def _bfloat16() -> contextlib.AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)


@net
def autocast(_: float) -> Training:
    """A layer used twice, so that autocast's cache of weights matters."""
    layer, norm, head = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3)
    model = nn.Sequential(layer, norm, layer, nn.GELU(), head)

    def forward_backward(_: int) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            out = model(torch.randn(4, 6))
            loss = F.cross_entropy(out.float(), torch.randint(3, (4,)))
        loss.backward()
        return loss

    return Training(model, adam(model), forward_backward, context=_bfloat16)


@net
def normed_weights(_: float) -> Training:
    """Spectral norm changes its buffers whenever the weight is read."""
    spectral = parametrizations.spectral_norm(nn.Linear(6, 6))
    weight = parametrizations.weight_norm(nn.Linear(6, 4))
    old = nn.utils.spectral_norm(nn.Linear(4, 4))
    model = nn.Sequential(spectral, nn.ELU(inplace=True), weight, old)

    def forward_backward(_: int) -> torch.Tensor:
        loss = model(torch.randn(3, 6)).logsumexp(-1).sum()
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


class _Dropouts(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Dropout(dropout), nn.RReLU(), nn.AlphaDropout(dropout), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.layers(x), 0.3) + torch.bernoulli(torch.full((4,), 0.5)) + torch.randn_like(x[:, :4])


@net
def dropouts(_: float) -> Training:
    """Draws from the generators in every possible way; never used where a call is run again."""
    import random

    import numpy as np

    model = nn.Sequential(_Dropouts(0.4))

    def forward_backward(_: int) -> torch.Tensor:
        noise = random.random() + float(np.random.rand())
        loss = (model(torch.rand(5, 6)) * noise).square().mean() + torch.normal(0.0, 1.0, (1,)).item()
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


class _Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.randn(8, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spectrum = torch.fft.rfft(x) * self.filter
        return torch.fft.irfft(spectrum.conj() * spectrum, n=8).double() * self.scale, spectrum


@net
def complex_and_double(_: float) -> Training:
    model = nn.Sequential(_Spectrum())

    def forward_backward(_: int) -> torch.Tensor:
        signal, spectrum = model(torch.randn(3, 8))
        loss = signal.abs().sum() + torch.view_as_real(spectrum).square().sum() + spectrum.imag.sum()
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)
