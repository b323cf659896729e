from __future__ import annotations

from types import ModuleType

import pytest
import torch

from msprobe.numerics import DTYPES, fallback, fallback_pairs

try:
    from msprobe.numerics import _kernels
except ImportError:  # no compiler here: the twin is still tested
    _kernels = None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Not every torch has every dtype: float8_e8m0fnu came with 2.7."""
    name = item.callspec.params.get("name") if hasattr(item, "callspec") else None
    if name in DTYPES and not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")


class Implementation:
    def __init__(self, summaries: ModuleType, pairs: ModuleType) -> None:
        self.summarize = summaries.summarize
        self.summarize_strided = summaries.summarize_strided
        self.compare_pair = pairs.compare_pair


@pytest.fixture(scope="module", params=["kernels", "twin"])
def numeric(request: pytest.FixtureRequest) -> Implementation:
    """Every test that takes this runs on the C kernels and on their numpy twin."""
    if request.param == "twin":
        return Implementation(fallback, fallback_pairs)
    if _kernels is None:
        pytest.skip("the kernels are not built")
    return Implementation(_kernels, _kernels)


@pytest.fixture(scope="session")
def kernels() -> ModuleType:
    if _kernels is None:
        pytest.skip("the kernels are not built")
    return _kernels
