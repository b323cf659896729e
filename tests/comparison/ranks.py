"""Dumps of several ranks that communicate, with a difference planted on one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .dumps import Json, api, tensor, write_dump


def group(*ranks: int) -> Json:
    return {"type": "torch.ProcessGroup", "group_ranks": list(ranks), "group_id": "x"}


def number(value: int) -> Json:
    return {"type": "int", "value": value}


def p2p(op: str, peer: int, value: Any, tag: int = 0) -> Json:
    return {"class_type": "torch.distributed.P2POp", "tensor": value, "op": op, "peer": peer, "tag": tag, "group_id": "x"}


def compute(name: str, given: float, result: float) -> Json:
    return {name: api([tensor(given)], [tensor(result)])}


def write_ranks(root: Path, ranks: dict[int, Json]) -> Path:
    for rank, data in ranks.items():
        write_dump(root / f"rank{rank}", data, level="L1")
    return root
