from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytorch.capturing import forget_debugger


@pytest.fixture(autouse=True)
def fresh_debugger() -> Iterator[None]:
    """The debugger is one per process: each test has its own."""
    forget_debugger()
    yield
    forget_debugger()
