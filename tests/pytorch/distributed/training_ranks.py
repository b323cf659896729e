"""One rank of trainings with DistributedDataParallel, fully_shard and tensor parallelism, without and with the tool."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from capturing import configured, forget_debugger
from nets import bits, randomness, seed
from ranks import as_rank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")


class Block(nn.Module):
    def __init__(self, checkpointing: bool | None = None) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 4)
        self.checkpointing = checkpointing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.checkpointing is None:
            return x + self.inner(x)
        return x + checkpoint(self.inner, x, use_reentrant=self.checkpointing)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.norm(self.up(x))))


def blocks(checkpointing: bool | None = None) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), Block(checkpointing), Block(checkpointing), nn.Dropout(0.2), nn.Linear(4, 2))


@dataclass
class Training:
    """How one kind of model is built, and what differs in its steps."""

    build: Callable[[], nn.Module]
    accumulate: Callable[[nn.Module], contextlib.AbstractContextManager[Any]] | None = None
    """Context of a first backward pass whose gradients are not reduced."""
    late: bool = False
    """stop() comes before the backward pass."""
    hook: Callable[[nn.Module], None] = field(default=lambda model: None)


def ddp(checkpointing: bool | None = None, **options: Any) -> Callable[[], nn.Module]:
    return lambda: DistributedDataParallel(blocks(checkpointing), bucket_cap_mb=0.0001, **options)


def sharded(**options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = blocks()
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in (model[1], model[2]):
            fully_shard(block, mesh=mesh, **options)
        return fully_shard(model, mesh=mesh, **options)

    return build


def tensor_parallel() -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = blocks()
    for block in (model[1], model[2]):
        block.norm = nn.Identity()  # each rank sees its part of the features only
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def sharded_tensor_parallel() -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = blocks()
    for block in (model[1], model[2]):
        block.norm = nn.Identity()
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


def hybrid_sharded() -> nn.Module:
    return fully_shard(blocks(), mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def python_hook(model: nn.Module) -> None:
    def reduce(_, bucket):  # type: ignore[no-untyped-def]  # torch asks for no annotations or for classes, not for their names
        future = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    model.register_comm_hook(None, reduce)


@contextlib.contextmanager
def unreduced(model: nn.Module) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)


KINDS = {
    "ddp": Training(ddp()),
    "ddp accumulating": Training(ddp(), lambda model: model.no_sync()),
    "ddp views": Training(ddp(gradient_as_bucket_view=True)),
    "ddp static": Training(ddp(static_graph=True)),
    "ddp checkpoint": Training(ddp(False)),
    "ddp reentrant checkpoint": Training(ddp(True, static_graph=True)),
    "ddp python hook": Training(ddp(), hook=python_hook),
    "ddp late": Training(ddp(), late=True),
    "fsdp": Training(sharded()),
    "fsdp accumulating": Training(sharded(), unreduced),
    "fsdp kept": Training(sharded(reshard_after_forward=False)),
    "tensor parallel": Training(tensor_parallel),
}
SHARDED_ON_CPU = hasattr(torch.cpu.Stream, "record_event")
"""In torch 2.6, fully_shard calls what streams of a CPU do not have."""
OF_FOUR = {"fsdp of tensor parallel": Training(sharded_tensor_parallel), "hybrid": Training(hybrid_sharded)}
STEPS = 2


def plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def training(rank: int, kind: str, start: Callable[[Any], None], stop: Callable[[], None], end: Callable[[], None]) -> list[Any]:
    seed()
    chosen = (KINDS | OF_FOUR)[kind]
    model = chosen.build()
    chosen.hook(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
    parallel = kind.endswith("tensor parallel")
    seed(rank // 2 if parallel else rank)  # ranks that share the features see the same data
    found: list[Any] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        start(model)
        if chosen.accumulate is not None:
            with chosen.accumulate(model):
                model(torch.randn(3, 4)).square().mean().backward()
        loss = model(torch.randn(3, 4)).square().mean()
        if chosen.late:
            stop()
        loss.backward()
        found += [digest(bits(loss)), *(digest(bits(plain(p.grad))) for p in model.parameters())]
        found.append({n: float(plain(p.grad).double().norm()) for n, p in model.named_parameters()})
        if not parallel:  # clipping refuses a mixture of tensors and DTensors
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        stop()
        end()
        found.append([p._post_accumulate_grad_hooks is None for p in model.parameters()])
    return found + [digest(bits(plain(t))) for t in [*model.parameters(), *model.buffers()]] + [digest(randomness())]


def body(rank: int, world: int, directory: Path) -> dict[str, Any]:
    outcome: dict[str, Any] = {}
    (directory / f"config{rank}").mkdir()
    for kind in KINDS if world == 2 else OF_FOUR:
        if not SHARDED_ON_CPU and kind.startswith(("fsdp", "hybrid")):
            continue
        nothing = lambda *_: None
        outcome[f"{kind} without"] = training(rank, kind, nothing, nothing, nothing)
        debugger = configured(
            directory / f"config{rank}", level="mix", task="statistics", dump_path=str(directory / kind), risk_level="ALL"
        )
        outcome[kind] = training(rank, kind, debugger.start, debugger.stop, debugger.step)
        forget_debugger()
    return outcome


if __name__ == "__main__":
    as_rank(body)
