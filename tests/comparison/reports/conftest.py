from __future__ import annotations

from collections.abc import Iterator

import pytest

from .browser import PROGRAM, Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("there is no Chromium on this machine")
    started = Browser()
    yield started
    started.close()
