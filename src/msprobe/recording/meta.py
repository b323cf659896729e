"""What meta.json says about a step of any framework: where and with what it was made, and what was not recorded."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

import msprobe
from msprobe import numerics
from msprobe.recording.tally import Tally

MOST_REASONS = 200


def begun(step: int, rank: int | None) -> dict[str, Any]:
    """Known when the step begins; cheap enough for every step."""
    return {
        "step": step,
        "rank": rank,
        "pid": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(sys.argv),
    }


def versions(framework: str, version: str) -> dict[str, Any]:
    """The same for all steps of a process."""
    return {
        "msprobe": msprobe.__version__,
        "kernels": numerics.HAVE_KERNELS,
        "python": platform.python_version(),
        framework: version,
        "numpy": np.__version__,
        "platform": platform.platform(),
    }


def counts(tally: Tally, reasons: Counter[str], modules_called: int, api_calls: int) -> dict[str, Any]:
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
        "not_recorded": dict(reasons.most_common(MOST_REASONS)),
    }
