from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from msprobe.log import logger


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What is logged, as `WARNING text`."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname} {record.getMessage()}")

    handler = Keep()
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
