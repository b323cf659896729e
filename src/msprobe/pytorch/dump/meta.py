"""What meta.json says about a step: where and with what it was made, and what was not recorded."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
import torch

import msprobe
from msprobe import numerics

_MAX_REASONS = 200


def environment(step: int, rank: int | None) -> dict[str, Any]:
    """Known when the step begins; cheap enough for every step."""
    return {
        "step": step,
        "rank": rank,
        "pid": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(sys.argv),
        **_versions(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch_seed": torch.initial_seed(),
        "threads": torch.get_num_threads(),
    }


_known: dict[str, Any] = {}


def _versions() -> dict[str, Any]:
    if not _known:
        _known.update(
            {
                "msprobe": msprobe.__version__,
                "kernels": numerics.HAVE_KERNELS,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
                "platform": platform.platform(),
                "cuda": torch.version.cuda,
                "device": torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu",
            }
        )
    return _known


def counts(tally: Any, reasons: Counter[str], modules_called: int, api_calls: int) -> dict[str, Any]:
    """Known when the step ends.

    Args:
        tally: the step's numbers.
        reasons: text of what was not recorded -> how often.
        modules_called, api_calls: all that came by, those included that the configuration leaves out.
    """
    return {
        "recorded": {"tensors": tally.tensors, "calls": tally.calls, "apis": tally.apis, "modules": len(tally.modules)},
        "seen": {"apis": api_calls, "modules": modules_called},
        "hooked_modules": tally.modules_hooked,
        "milliseconds_added": round(tally.spent * 1e3, 3),
        "not_recorded": dict(reasons.most_common(_MAX_REASONS)),
    }
