from __future__ import annotations

from types import ModuleType

import pytest

from msprobe.numerics import fallback, fallback_pairs

try:
    from msprobe.numerics import _kernels
except ImportError:  # no compiler here: the twin is still tested
    _kernels = None


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
