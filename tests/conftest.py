"""For all tests."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
from pathlib import Path

import pytest

import warm_python

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background has it ignored, and so would every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def what_was_there_before() -> None:
    """The collector need not look at it again: some million objects of torch, transformers, pytest and of earlier files' tests.

    Else every `gc.collect()`, of which a training with the Trainer alone makes two, costs up to a second in a long run.
    """
    gc.collect()
    gc.freeze()


_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty directory. pytest's own reads the names of all that there are to find a free number, thousands of times."""
    path = tmp_path_factory.getbasetemp() / f"{re.sub('[^a-zA-Z0-9]', '_', request.node.name)[:30]}-{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """What an interpreter reads when it starts is again what it was: seed_all sets PYTHONHASHSEED, and later scripts would get it."""
    for name in warm_python.read_at_start({*os.environ, *warm_python.ENVIRONMENT}):
        if name in warm_python.ENVIRONMENT:
            os.environ[name] = warm_python.ENVIRONMENT[name]
        else:
            os.environ.pop(name, None)
