"""The table of risk levels against torch and against the list of watched functions."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from msprobe.pytorch.dump.api_dump.api_table import PREFIXES, read_operations
from msprobe.recording import risk

HOMES = (torch, torch.Tensor, torch.nn.functional, torch._VF)
VERSION = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
NEWEST = VERSION >= (2, 13)
OF_2_14 = {"linalg.matrix_sqrth", "linalg.polar"}


def _found(home: Any, name: str) -> bool:
    for part in name.split("."):
        home = getattr(home, part, None)
    return home is not None


def test_every_watched_function_has_a_class() -> None:
    without = [
        f"{category}.{name}"
        for category, names in read_operations().items()
        if category in ("functional", "tensor", "torch", "_VF")  # the others have their prefix's class, an operator its namesake's
        for name in names
        if risk._known(name) is None
    ]
    assert without == [], "give each of them a place in recording/risk.py"


@pytest.mark.skipif(not NEWEST, reason="the table is of the newest torch")
def test_torch_has_every_function_of_the_table() -> None:
    variants = ("{}", "{}_", "_foreach_{}", "_foreach_{}_")
    names = [name for group in risk.GROUPS for name in group.names if name not in OF_2_14 or VERSION > (2, 13)]
    assert [n for n in names if not any(_found(home, variant.format(n)) for home in HOMES for variant in variants)] == []


@pytest.mark.skipif(not NEWEST, reason="the table is of the newest torch")
def test_torch_has_every_operator_of_the_table() -> None:
    assert [name for group in risk.ATEN for name in group.names if not hasattr(torch.ops.aten, name)] == []


def test_the_other_categories_are_core_whatever_the_name() -> None:
    others = {category for category in PREFIXES if category not in ("functional", "tensor", "torch", "_VF", "aten")}
    assert "distributed" in others and {PREFIXES[category] for category in others} <= set(risk.FUSED_PREFIXES)
