"""What meta.json says about a step of torch's."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.recording import meta


def environment(step: int, rank: int | None) -> dict[str, Any]:
    """Known when the step begins; cheap enough for every step."""
    return {
        **meta.begun(step, rank),
        **_versions(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch_seed": torch.initial_seed(),
        "threads": torch.get_num_threads(),
    }


_known: dict[str, Any] = {}


def _versions() -> dict[str, Any]:
    if not _known:
        _known.update(
            meta.versions("torch", torch.__version__),
            cuda=torch.version.cuda,
            device=torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu",
        )
    return _known
