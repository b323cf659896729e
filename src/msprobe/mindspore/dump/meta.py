"""What meta.json says about a step of MindSpore's."""

from __future__ import annotations

from typing import Any

import mindspore

from msprobe.recording import meta

_known: dict[str, Any] = {}


def environment(step: int, rank: int | None) -> dict[str, Any]:
    """Known when the step begins; cheap enough for every step."""
    if not _known:
        _known.update(meta.versions("mindspore", mindspore.__version__), device=str(mindspore.get_context("device_target")))
    return {
        **meta.begun(step, rank),
        **_known,
        "deterministic": str(mindspore.get_context("deterministic")),
        "mindspore_seed": mindspore.get_seed(),
    }
