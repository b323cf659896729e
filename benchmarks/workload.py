"""The workload of step_cost.py and bench_floor.py: a small transformer, its batches and one training step's forward and backward.

Imports nothing of msprobe: it runs under whichever interpreter, with whichever tool.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"s": (64, 6, 4, 32, 2), "m": (256, 6, 8, 128, 4), "l": (768, 4, 12, 256, 4)}
"""Size -> width, layers, heads, tokens, batch."""
VOCAB = 1000


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(d, dim=2))
        scores = (q @ k.transpose(-2, -1)) / (d // self.heads) ** 0.5
        causal = torch.tril(torch.ones(t, t)).bool()
        weights = F.softmax(scores.masked_fill(~causal, float("-inf")), dim=-1)
        x = x + self.proj((weights @ v).transpose(1, 2).contiguous().view(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        width, layers, heads, tokens, _ = SIZES[size]
        self.tok, self.pos = nn.Embedding(VOCAB, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def batch(size):
    """Token ids."""
    _, _, _, tokens, count = SIZES[size]
    return torch.randint(0, VOCAB, (count, tokens))


def train(model, optimizer, ids):
    """Forward, backward and one update."""
    loss = F.cross_entropy(model(ids).view(-1, VOCAB), ids.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
