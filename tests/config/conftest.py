from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msprobe.config import Config, available, load_config
from msprobe.errors import ConfigError
from msprobe.log import logger


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def load() -> Callable[..., Config]:
    """Writes the object (or the text, or the bytes) to config.json and loads it; `dump_path` is added to objects without one."""

    def run(content: Any = None, **arguments: Any) -> Config:
        if content is None:
            content = {}
        if isinstance(content, dict):
            content = json.dumps({"dump_path": "./dump", **content})
        Path("config.json").write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_config("config.json", **arguments)

    return run


@pytest.fixture
def problems(load: Callable[..., Config]) -> Callable[..., list[str]]:
    """The lines of the ConfigError that loading raises; none at all fails the test."""

    def run(content: Any = None, **arguments: Any) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(content, **arguments)
        return str(caught.value).splitlines()

    return run


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Texts of the warnings logged so far."""
    texts: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert record.levelno == logging.WARNING
            texts.append(record.getMessage())

    handler = Handler()
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


@pytest.fixture
def all_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything in the table of what is not built yet were built."""
    monkeypatch.setattr(available, "NOT_YET", ())
