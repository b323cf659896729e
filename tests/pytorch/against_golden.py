"""Holds an entry of ours against the reference's, key by key.

What differs by intent, everywhere (numbers of dump-behaviour's fault list):

- statistics the reference leaves null and ours do not: fp64, integers, complex (F16, F20);
- Mean and Norm of half-precision tensors, taken there in half precision (F19): equal to two digits;
- the Norm of a 0-d value, signed there and a magnitude here (F18);
- md5 keys.

In backward entries `output` is compared only where asked: the reference gives the inputs of the last node of the graph (F24) and, for
modules, only positional inputs (F31).
"""

from __future__ import annotations

import math
from typing import Any

STATISTICS = ("Max", "Min", "Mean", "Norm")


def entry_differences(theirs: dict[str, Any], ours: dict[str, Any], backward_output: bool = False, values: bool = True) -> list[str]:
    """What differs between two entries; empty for equal ones."""
    theirs, ours = dict(theirs), dict(ours)
    if "input" in theirs and not backward_output:
        theirs.pop("output", None)
        if ours.pop("output", None) is None:
            return ["no output"]
    return differences(theirs, ours, "", values)


def differences(theirs: Any, ours: Any, path: str, values: bool) -> list[str]:
    """What differs between two records."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [f"{path}: {theirs} became {ours}"]
        if "shape" in theirs and "Max" in theirs:
            return _tensor_differences(theirs, ours, path, values)
        if list(theirs) != list(ours):
            return [f"{path}: keys {list(theirs)} became {list(ours)}"]
        return [text for key in theirs for text in differences(theirs[key], ours[key], f"{path}.{key}", values)]
    if isinstance(theirs, list):
        if not isinstance(ours, list) or len(theirs) != len(ours):
            return [f"{path}: {len(theirs)} elements became {ours}"]
        return [text for i, pair in enumerate(zip(theirs, ours, strict=True)) for text in differences(*pair, f"{path}.{i}", values)]
    if type(theirs) is not type(ours) or not _equal(theirs, ours):
        return [f"{path}: {theirs!r} became {ours!r}"]
    return []


def _tensor_differences(theirs: dict[str, Any], ours: dict[str, Any], path: str, values: bool) -> list[str]:
    if list(theirs) != list(ours):
        return [f"{path}: keys {list(theirs)} became {list(ours)}"]
    found = [f"{path}.{k}: {v!r} became {ours[k]!r}" for k, v in theirs.items() if k not in STATISTICS and v != ours[k]]
    if not values:
        return found + [f"{path}.{k}: null became or was a number" for k in ("Max", "Min") if (theirs[k] is None) != (ours[k] is None)]
    for key in STATISTICS:
        a, b = theirs[key], ours[key]
        if a is None:
            continue  # never a value where ours has none
        if key == "Norm" and theirs["shape"] == []:
            a = abs(a)
        if key in ("Mean", "Norm") and theirs["dtype"] in ("torch.float16", "torch.bfloat16"):
            if b is None or not math.isclose(a, b, rel_tol=0.02, abs_tol=1e-3):
                found.append(f"{path}.{key}: {a!r} became {b!r}")
        elif b is None or not _equal(a, b):
            found.append(f"{path}.{key}: {a!r} became {b!r}")
    return found


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, int | float) or not isinstance(b, int | float):
        return a is b or a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=2e-4, abs_tol=2e-6)


def sample_differences(theirs: dict[str, Any], ours: dict[str, Any], **options: Any) -> list[str]:
    """Entries that both have, compared; `theirs` and `ours` are the `data` of two dumps."""
    return [f"{name} {text}" for name in theirs if name in ours for text in entry_differences(theirs[name], ours[name], **options)]
