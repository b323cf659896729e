"""For all tests."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """What is there before the first test, some million objects of torch, transformers and pytest, the collector need not look at again."""
    gc.collect()
    gc.freeze()
