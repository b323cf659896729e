"""What two runs were made with, where that differs: another torch, another device, and the like explain much of what is found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe.errors import MsprobeException
from msprobe.format.reader import read_meta

_SAID = {
    "torch": "torch {}",
    "mindspore": "mindspore {}",
    "python": "Python {}",
    "cuda": "CUDA {}",
    "device": "device {}",
    "threads": "{} threads",
    "deterministic_algorithms": "deterministic algorithms {}",
    "deterministic": "deterministic {}",
}
"""Key of meta.json -> what is said of it."""


def differing(target: Path, golden: Path) -> list[str]:
    """Sentences, none where both runs were made alike and are of one step, as far as both of them say.

    Args:
        target, golden: the two dump files; meta.json beside them tells.
    """
    ours, theirs = _meta(target), _meta(golden)
    keys = [key for key in _SAID if key in ours and key in theirs and ours[key] != theirs[key]]
    told = [f"the target was made with {_listed(ours, keys)}; the golden run with {_listed(theirs, keys)}"] if keys else []
    steps = ours.get("step"), theirs.get("step")
    if type(steps[0]) is type(steps[1]) is int and steps[0] != steps[1]:
        told.append(
            f"the target is step {steps[0]} of its run, the golden dump step {steps[1]}: other data, and other weights where it trains"
        )
    return told


def _meta(dump: Path) -> Mapping[str, Any]:
    try:
        return read_meta(dump.parent)
    except MsprobeException:
        return {}


def _listed(meta: Mapping[str, Any], keys: list[str]) -> str:
    return ", ".join(_SAID[key].format(_word(meta[key])) for key in keys)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)
