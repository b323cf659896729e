"""The one logger: lines `YYYY-MM-DD HH:MM:SS (pid) [rank N] [LEVEL] text` on standard error.

`MSPROBE_LOG_LEVEL` 0 to 4 shows debug, info, warning, error, nothing (default 1).
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:  # not subscriptable on Python 3.10
    _StreamHandler = logging.StreamHandler

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL + 1)
_rank: int | None = None


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        rank = "" if _rank is None else f" [rank {_rank}]"
        return f"{self.formatTime(record, '%Y-%m-%d %H:%M:%S')} ({os.getpid()}){rank} [{record.levelname}] {record.getMessage()}"


class _StderrHandler(_StreamHandler):
    """Looks `sys.stderr` up at every line, so that redirection after import works; a closed stream is no error."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """A log line that cannot be written must not disturb the training it reports on."""


def _level_from_environment() -> int:
    text = os.environ.get("MSPROBE_LOG_LEVEL", "1")
    return _LEVELS[int(text)] if text in {"0", "1", "2", "3", "4"} else logging.INFO


def set_rank(rank: int | None) -> None:
    """From now on log lines carry `[rank N]`."""
    global _rank
    _rank = rank


logger = logging.getLogger("msprobe")
if not logger.handlers:
    _handler = _StderrHandler()
    _handler.setFormatter(_Formatter())
    logger.addHandler(_handler)
    logger.setLevel(_level_from_environment())
    logger.propagate = False
