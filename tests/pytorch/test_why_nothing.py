"""A run that ends without a recorded step says why, as far as it is known."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from capturing import configured

from msprobe.pytorch import PrecisionDebugger


@pytest.mark.parametrize(
    ("fields", "rank", "level", "text"),
    [
        (
            {"rank": [0]},
            None,
            logging.WARNING,
            'nothing was recorded: 2 steps were ended by step(); "rank" is set, but this process has no rank (no process group)',
        ),
        ({"rank": [0]}, 1, logging.INFO, 'nothing was recorded: "rank" does not select rank 1'),
        (
            {"step": [7]},
            None,
            logging.WARNING,
            'nothing was recorded: 2 steps were ended by step(), and only the steps [7] are selected by "step";'
            " start() was called in none of these",
        ),
    ],
)
def test_the_reason_is_given(
    fields: dict[str, list[int]], rank: int | None, level: int, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    debugger = configured(tmp_path, **fields)
    for _ in range(2):
        debugger.start(rank_id=rank)
        debugger.step()
    assert _told_at_exit(caplog) == (level, text)


def test_without_start_it_is_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    configured(tmp_path).step()
    assert _told_at_exit(caplog) == (
        logging.WARNING,
        "nothing was recorded: 1 steps were ended by step(); is start() called, in this process?",
    )


def _told_at_exit(caplog: pytest.LogCaptureFixture) -> tuple[int, str]:
    logger = logging.getLogger("msprobe")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "msprobe")
    session = PrecisionDebugger._session
    assert session is not None
    try:
        session.at_exit()
    finally:
        logger.removeHandler(caplog.handler)
    return caplog.records[-1].levelno, caplog.records[-1].getMessage()
