"""The code behind the reference's samples, as functions: each records what it does and leaves the dump in `directory / "dump"`."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from capturing import Run, configured, golden
from torch.utils.checkpoint import checkpoint

from msprobe.pytorch import PrecisionDebugger, seed_all


def sample_debugger(case: str, directory: Path, **config: Any) -> PrecisionDebugger:
    """A debugger with the sample's configuration (md5 sums, which are another matter, left out)."""
    fields = copy.deepcopy(golden(case)["config"]) | config
    if fields["task"] == "statistics" and "statistics" in fields:
        fields["statistics"].pop("summary_mode", None)
    return configured(directory, **fields)


class B(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.fc(x))


def misc1(case: str, directory: Path) -> Run:
    """Steps: 0 reentrant and 1 non-reentrant checkpoint, 2 no_grad, 3 backward twice, 4 start and stop twice, 5 stop before backward,
    6 and 7 backward in the next step."""

    class M(nn.Module):
        def __init__(self, reentrant: bool) -> None:
            super().__init__()
            self.b1 = B()
            self.b2 = B()
            self.reentrant = reentrant

        def forward(self, x):
            return self.b2(checkpoint(self.b1, x, use_reentrant=self.reentrant))

    seed_all(1)
    debugger = sample_debugger(case, directory)
    for reentrant in (True, False):
        m = M(reentrant)
        x = torch.randn(2, 3, requires_grad=True)
        debugger.start(m)
        m(x).sum().backward()
        debugger.stop()
        debugger.step()
    m = M(False)
    debugger.start(m)
    with torch.no_grad():
        m.b2(x)
    with torch.inference_mode():
        m.b2(x)
    m.b2(x)
    debugger.stop()
    debugger.step()

    debugger.start(m)
    loss = m.b2(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    debugger.stop()
    debugger.step()

    debugger.start(m)
    m.b2(x).sum().backward()
    debugger.stop()
    m.b2(x).sum().backward()
    debugger.start(m)
    m.b2(x).sum().backward()
    debugger.stop()
    debugger.step()

    debugger.start(m)
    loss = m.b2(x).sum()
    debugger.stop()
    loss.backward()
    debugger.step()

    debugger.start(m)
    loss = m.b2(x).sum()
    debugger.stop()
    debugger.step()
    debugger.start(m)
    loss.backward()
    debugger.stop()
    debugger.step()
    return Run(directory / "dump")


class Output(OrderedDict):
    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.__dict__.update(values)


class Block(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc = nn.Linear(d, d)
        self.act = nn.ReLU(inplace=True)
        self.norm = nn.LayerNorm(d)

    def forward(self, x, mask=None, *, scale=1.0):
        h = self.act(self.fc(self.norm(x)))
        if mask is not None:
            h = h * mask
        return {"h": x + h * scale, "aux": [h.mean(), "tag", 3]}


class Tied(nn.Module):
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = embedding.weight

    def forward(self, x):
        return x @ self.weight.t()


class Various(nn.Module):
    """Tied weights, a module under two names, one never used, one frozen, dict outputs, in-place activations."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.shared = nn.Linear(4, 4, bias=False)
        self.alias = self.shared
        self.drop = nn.Dropout(0.0)
        self.unused = nn.Linear(4, 4)
        self.head = Tied(self.emb)
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)

    def forward(self, ids, mask=None):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x, mask=mask, scale=0.5)["h"]
        x = self.frozen(self.seq(self.drop(self.alias(self.shared(x)))))
        return Output(logits=self.head(x), hidden=x)


def various(case: str, directory: Path) -> Run:
    """Two micro batches, gradient clipping and an optimizer step."""
    seed_all(1)
    debugger = sample_debugger(case, directory, step=[0])
    m = Various()
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    ids = torch.tensor([[0, 1, 2]])
    mask = torch.ones(1, 3, 1)
    for _ in range(2):
        debugger.start(m)
        for _ in range(2):
            out = m(ids, mask=mask)
            F.cross_entropy(out["logits"].view(-1, 5), ids.view(-1)).backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
    return Run(directory / "dump")


def list_of_models(case: str, directory: Path) -> Run:
    """Steps: 0 a list, 1 a tuple, 2 one model, 3 a list of one, 4 a model with nothing inside."""
    debugger = sample_debugger(case, directory)
    a = nn.Sequential(nn.Linear(2, 2))
    b = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    x = torch.ones(1, 2)
    for models in ([a, b], (a, b), a, [a], nn.Linear(2, 2)):
        debugger.start(models)
        b(a(x)).sum().backward()
        debugger.stop()
        debugger.step()
    return Run(directory / "dump")


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, hidden_states=None, mask=None):
        return self.fc(hidden_states) * (1 if mask is None else mask)


class KeywordsOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = Inner(), Inner(), Inner()
        self.l = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x):
        x = self.b(hidden_states=self.a(x))
        x = self.c(x, mask=x)
        return self.l[0](x)


def keywords_only(case: str, directory: Path) -> Run:
    """Modules called with keyword tensors."""
    seed_all(1)
    debugger = sample_debugger(case, directory)
    m = KeywordsOnly()
    debugger.start(m)
    m(torch.randn(2, 4, requires_grad=True)).sum().backward()
    debugger.stop()
    debugger.step()
    return Run(directory / "dump")


def caught_error(case: str, directory: Path) -> Run:
    """Step 0 holds a call that raises; the user catches it."""
    debugger = sample_debugger(case, directory)
    m = nn.Sequential(nn.Linear(2, 2))
    for step in range(3):
        debugger.start(m)
        torch.relu(torch.ones(1))
        if step == 0:
            try:
                torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
            except RuntimeError:
                pass
        m(torch.ones(1, 2)).sum().backward()
        debugger.stop()
        debugger.step()
    return Run(directory / "dump")


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)) * 2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = Mlp()
        self.b = nn.Linear(2, 2)

    def forward(self, x):
        return F.softmax(self.b(self.a(x)), dim=-1)


def small_net(case: str, directory: Path, **config: Any) -> Run:
    """Two training steps of which the first is selected."""
    seed_all(1)
    debugger = sample_debugger(case, directory, **config)
    m = Net()
    x = torch.randn(3, 4)
    for _ in range(2):
        debugger.start(m)
        m(x).pow(2).sum().backward()
        debugger.stop()
        debugger.step()
    return Run(directory / "dump")


RUNS: dict[str, Callable[[str, Path], Run]] = {
    "misc1_L0": misc1,
    "misc1_L1": misc1,
    "misc1_mix": misc1,
    "l0_tensor": various,
    "mix_stat": various,
    "listmodel": list_of_models,
    "kwargs_only_L0": keywords_only,
    "exc_L1": caught_error,
    **dict.fromkeys(
        ("list_exact", "list_mix", "scope_L0", "scope_L1", "scope_mix", "dm_input", "dm_backward", "tensor_list", "structure"), small_net
    ),
}
