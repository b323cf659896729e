from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

Lines = Callable[..., list[str]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    """The log's lines since the last time they were asked for."""
    logger = logging.getLogger("msprobe")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "msprobe")

    def lines(level: int = logging.INFO) -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelno >= level]
        caplog.clear()
        return found

    yield lines
    logger.removeHandler(caplog.handler)
