"""Which rank this process is."""

from __future__ import annotations

import torch


def current_rank() -> int | None:
    """The rank in the default process group, None where there is none."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return None
