"""For all tests."""

from __future__ import annotations

import gc
import os

import pytest

import warm_python


@pytest.fixture(scope="module", autouse=True)
def what_was_there_before() -> None:
    """The collector need not look at it again: some million objects of torch, transformers, pytest and of earlier files' tests.

    Else every `gc.collect()`, of which a training with the Trainer alone makes two, costs up to a second in a long run.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """What an interpreter reads when it starts is again what it was: seed_all sets PYTHONHASHSEED, and later scripts would get it."""
    for name in warm_python.read_at_start({*os.environ, *warm_python.ENVIRONMENT}):
        if name in warm_python.ENVIRONMENT:
            os.environ[name] = warm_python.ENVIRONMENT[name]
        else:
            os.environ.pop(name, None)
