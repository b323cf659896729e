"""For all tests."""

from __future__ import annotations

import gc

import pytest


def pytest_collection_finish() -> None:
    """What is there before the first test, some million objects of torch, transformers and pytest, the collector need not look at again."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """The mark of tests that run scripts in an environment with MindSpore."""
    config.addinivalue_line("markers", "mindspore: needs MindSpore in an environment of its own (MSPROBE_MINDSPORE_PYTHON)")
