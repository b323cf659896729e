"""One rank that communicates in every way torch.distributed has, without and with the tool; run by test_communication.py."""

from __future__ import annotations

import hashlib
import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from capturing import configured
from ranks import as_rank
from torch.distributed import all_reduce as bound_before
from torch.distributed import irecv as bound_irecv
from torch.distributed import isend as bound_isend

warnings.simplefilter("ignore")


def digest(*values: Any) -> str:
    """The bits of tensors, and anything else as text."""
    buffer = io.BytesIO()
    for value in values:
        torch.save(value.detach().contiguous(), buffer) if isinstance(value, torch.Tensor) else buffer.write(repr(value).encode())
    return hashlib.sha256(buffer.getvalue()).hexdigest()[:12]


class Finding:
    """What the user's code can see, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, name: str, *values: Any) -> None:
        self.seen.append(f"{name}: {digest(*values)} {[v for v in values if not isinstance(v, torch.Tensor)]}")


def sample(rank: int, found: Finding) -> None:
    """The calls of the sample dist_L1, in its order."""
    t = torch.ones(4) * (rank + 1)
    found("all_reduce", dist.all_reduce(t), t)
    found("broadcast", dist.broadcast(t, 0), t)
    gathered = [torch.zeros(4) for _ in range(2)]
    found("all_gather", dist.all_gather(gathered, t), *gathered)
    found("reduce", dist.reduce(t, 0, op=dist.ReduceOp.MAX), t)
    part = torch.zeros(2)
    found("scatter", dist.scatter(part, [torch.ones(2), torch.ones(2) * 2] if rank == 0 else None, src=0), part)
    found("gather", dist.gather(t, [torch.zeros(4), torch.zeros(4)] if rank == 0 else None, dst=0))
    whole = torch.zeros(8)
    found("all_gather_into_tensor", dist.all_gather_into_tensor(whole, t), whole)
    found("reduce_scatter_tensor", dist.reduce_scatter_tensor(part, t), part)
    exchanged = torch.zeros(4)
    found("all_to_all_single", dist.all_to_all_single(exchanged, t), exchanged)
    found("barrier", dist.barrier())
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"a": rank})
    found("all_gather_object", objects)
    buffer = torch.zeros(4)
    found("send, recv", dist.send(t, 1) if rank == 0 else dist.recv(buffer, 0), buffer)
    work = dist.isend(t, 1) if rank == 0 else dist.irecv(buffer, 0)
    found("isend, irecv", work.wait(), buffer)
    u = torch.ones(3) * rank
    work = dist.all_reduce(u, async_op=True)
    found("async all_reduce", type(work) is dist.Work, work.wait(), u)
    received = torch.zeros(2)
    ops = [dist.P2POp(dist.isend, torch.ones(2) * rank, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
    found("batch", [w.wait() for w in dist.batch_isend_irecv(ops)], received)
    from torch.distributed.nn.functional import all_reduce

    z = torch.ones(2, requires_grad=True)
    all_reduce(z * 2).sum().backward()
    found("functional all_reduce", z.grad)
    one = torch.ones(2)
    group = dist.new_group([0, 1])
    found("group", dist.all_reduce(one, group=group), one)
    one = torch.ones(2)
    found("keyword", dist.all_reduce(tensor=one, op=dist.ReduceOp.SUM), one)


def further(rank: int, found: Finding) -> None:
    """What the sample leaves out."""
    t = torch.full((2,), float(rank + 1))
    found("bound before", bound_before(t), t)
    out = [torch.zeros(1), torch.zeros(1)]
    try:
        found("all_to_all", dist.all_to_all(out, [torch.ones(1) * rank, torch.ones(1) * (rank + 5)]), *out)
    except RuntimeError as error:
        found("all_to_all", type(error).__name__)
    part = torch.zeros(2)
    try:
        found("reduce_scatter", dist.reduce_scatter(part, [torch.ones(2), torch.ones(2) * (rank + 2)]), part)
    except RuntimeError as error:  # gloo in torch 2.6
        found("reduce_scatter", type(error).__name__)
    buffer = torch.full((2,), -1.0)
    found("recv by keyword", dist.recv(tensor=buffer, src=0) if rank else dist.send(tensor=t, dst=1), buffer)
    u = torch.full((3,), float(rank + 1))
    work = dist.all_reduce(u, async_op=True)
    while not work.is_completed():
        pass
    u.mul_(100)
    found("polled", u)
    v = torch.full((3,), float(rank + 1))
    future = dist.all_reduce(v, async_op=True).get_future()
    found("future", future.wait()[0].sum().item(), future.done(), v)
    v.mul_(100)
    w = torch.full((3,), float(rank + 1))
    chained = dist.all_reduce(w, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    found("then", chained.wait(), w)
    w.mul_(100)
    ops = [dist.P2POp(bound_isend, torch.ones(2) * (rank + 1), 1 - rank), dist.P2POp(bound_irecv, received := torch.zeros(2), 1 - rank)]
    works = dist.batch_isend_irecv(ops)
    found("batch, waited in reverse", [w.wait() for w in reversed(works)], received, repr(ops[0]), ops[0].op is dist.isend)
    leaf = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        found("parameter", dist.broadcast(leaf, 0), leaf, leaf.requires_grad, leaf.is_leaf)
    found("grad mode", torch.is_grad_enabled())
    try:
        dist.all_reduce("no tensor")
    except Exception as error:
        found("raised", type(error).__name__, str(error))
    try:
        dist.all_reduce(t, group=object())
    except Exception as error:
        found("raised too", type(error).__name__)
    found("after an error", dist.all_reduce(t), t)
    alone = dist.new_group([0])
    found("not in the group", dist.all_reduce(t, group=alone), t)
    found(
        "identity", pickle.loads(pickle.dumps(dist.all_reduce)) is bound_before, dist.all_reduce is bound_before, dist.all_reduce.__name__
    )
    lost = torch.full((2,), float(rank))
    dist.all_reduce(lost, async_op=True)  # nobody keeps the handle
    dist.barrier()
    found("never waited for", lost)
    found("after it", dist.all_reduce(t), t)
    with dist.distributed_c10d._coalescing_manager() as _:
        dist.all_reduce(a := torch.ones(2))
        dist.all_reduce(b := torch.ones(3))
    found("coalesced", a, b)


PROGRAMS: dict[str, Callable[[int, Finding], None]] = {"sample": sample, "further": further}


def body(rank: int, world: int, directory: Path) -> dict[str, list[str]]:
    outcome: dict[str, list[str]] = {}
    codes = {name: getattr(dist, name).__code__ for name in ("all_reduce", "isend", "batch_isend_irecv", "recv")}
    methods = dict(dist.Work.__dict__)
    future_methods = dict(torch._C.Future.__dict__)
    (directory / f"config{rank}").mkdir()
    debugger = configured(directory / f"config{rank}", level="L1", task="tensor", dump_path=str(directory / "dump"), risk_level="ALL")
    for name, program in PROGRAMS.items():
        program(rank, without := Finding())
        debugger.start()
        program(rank, with_tool := Finding())
        debugger.stop()
        debugger.step()
        outcome[name], outcome[f"{name} without"] = with_tool.seen, without.seen
    restored = all(getattr(dist, name).__code__ is code for name, code in codes.items())
    restored = restored and dict(dist.Work.__dict__) == methods and dict(torch._C.Future.__dict__) == future_methods
    outcome["restored"] = [str(restored)]
    return outcome


if __name__ == "__main__":
    as_rank(body)
