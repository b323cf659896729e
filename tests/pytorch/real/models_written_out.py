"""Architectures written out by hand: a diffusion U-Net, a residual network for images, a tagger on an LSTM."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from models import model, training
from nets import Training
from torch import nn
from torch.nn.utils import rnn

# Diffusion


class _Residual(nn.Module):
    """Two convolutions, the embedded time in between, a way around."""

    def __init__(self, channels: int, out: int, time: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.time = nn.Linear(time, out)
        self.second = nn.Sequential(nn.GroupNorm(4, out), nn.SiLU(), nn.Dropout(dropout), nn.Conv2d(out, out, 3, padding=1))
        self.around = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) + self.time(F.silu(time))[:, :, None, None]
        return self.second(hidden) + self.around(x)  # type: ignore[no-any-return]


class _Attention(nn.Module):
    """Every pixel looks at every other."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.out = nn.Conv1d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        flat = self.norm(x).view(b, c, h * w)
        q, k, v = self.qkv(flat).view(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h * w)
        return x + self.out(attended).view(b, c, h, w)  # type: ignore[no-any-return]


class _UNet(nn.Module):
    """Down twice, up twice, with ways across; predicts the noise that was added."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        time = 2 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([_Residual(width, width, time, dropout), _Residual(width, 2 * width, time, dropout)])
        self.smaller = nn.ModuleList([nn.Conv2d(width, width, 3, stride=2, padding=1), nn.AvgPool2d(2)])
        self.middle = nn.ModuleList([_Residual(2 * width, 2 * width, time, dropout), _Attention(2 * width, 2)])
        self.up = nn.ModuleList([_Residual(4 * width, width, time, dropout), _Residual(2 * width, width, time, dropout)])
        self.leave = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def embedded(self, steps: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        waves = torch.exp(torch.arange(half) * (-math.log(10000) / half))
        angles = steps[:, None].float() * waves[None]
        return self.time(torch.cat([angles.sin(), angles.cos()], -1))  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        time = self.embedded(steps)
        x = self.enter(x)
        across = []
        for block, smaller in zip(self.down, self.smaller, strict=True):
            x = block(x, time)
            across.append(x)
            x = smaller(x)
        x = self.middle[1](self.middle[0](x, time))
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, across.pop()], 1), time)
        return self.leave(x)  # type: ignore[no-any-return]


@model
def diffusion_unet(dropout: float) -> Training:
    kept = torch.linspace(0.99, 0.1, 10)

    def loss_of(net: nn.Module) -> torch.Tensor:
        images, noise, steps = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8), torch.randint(10, (2,))
        share = kept[steps][:, None, None, None]
        return F.mse_loss(net(share.sqrt() * images + (1 - share).sqrt() * noise, steps), noise)

    return training(_UNet(8, dropout), loss_of)


# Images


class _Bottleneck(nn.Module):
    expansion = 2

    def __init__(self, channels: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)  # type: ignore[no-any-return]


class _ResNet(nn.Module):
    """One in-place ReLU for a whole block, sums in place, running statistics."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.channels = 8
        self.conv1 = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._stage(4, 2, 1)
        self.layer2 = self._stage(8, 2, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(dropout, inplace=True)
        self.fc = nn.Linear(16, 4)

    def _stage(self, width: int, blocks: int, stride: int) -> nn.Sequential:
        found = []
        for number in range(blocks):
            out, step = width * _Bottleneck.expansion, stride if number == 0 else 1
            other = step != 1 or self.channels != out
            around = nn.Sequential(nn.Conv2d(self.channels, out, 1, stride=step, bias=False), nn.BatchNorm2d(out)) if other else None
            found.append(_Bottleneck(self.channels, width, step, around))
            self.channels = out
        return nn.Sequential(*found)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(self.dropout(torch.flatten(x, 1)))  # type: ignore[no-any-return]


@model
def resnet(dropout: float) -> Training:
    def loss_of(net: nn.Module) -> torch.Tensor:
        images = torch.randn(4, 3, 32, 32).to(memory_format=torch.channels_last)
        return F.cross_entropy(net(images), torch.randint(4, (4,)), label_smoothing=0.1)

    return training(_ResNet(dropout), loss_of)


# Sequences


class _Tagger(nn.Module):
    """A tag for each word; sentences of several lengths are packed."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, 8, num_layers=2, bidirectional=True, batch_first=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.tags = nn.Linear(16, 5)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = rnn.pack_padded_sequence(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = self.lstm(packed)
        padded, _ = rnn.pad_packed_sequence(hidden, batch_first=True)
        return self.tags(self.dropout(padded))  # type: ignore[no-any-return]


@model
def lstm_tagger(dropout: float) -> Training:
    lengths = torch.tensor([4, 7, 2])

    def loss_of(net: nn.Module) -> torch.Tensor:
        words, tags = torch.randint(1, 32, (3, 7)), torch.randint(5, (3, 7))
        beyond = torch.arange(7)[None] >= lengths[:, None]
        words[beyond], tags[beyond] = 0, -100
        found = F.cross_entropy(net(words, lengths).transpose(1, 2), tags, ignore_index=-100)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # gradients of the step before
        return found

    return training(_Tagger(dropout), loss_of)
