"""config.json: checked by the model of the configuration before it is there."""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from msprobe.config import Config, load_config
from msprobe.config.reading import read_object
from msprobe.errors import ConfigError, UsageError
from msprobe.instrument.source import write_whole
from msprobe.log import logger


def text_of(content: dict[str, Any]) -> str:
    """The file's text: lists in one line, as people write them."""
    inner = []
    for name, value in content.items():
        if isinstance(value, dict) and value:
            fields = ",\n".join(f"        {_text(key)}: {_text(one)}" for key, one in value.items())
            inner.append(f"    {_text(name)}: {{\n{fields}\n    }}")
        else:
            inner.append(f"    {_text(name)}: {_text(value)}")
    return "{\n" + ",\n".join(inner) + "\n}\n"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def check(content: dict[str, Any], shown: str) -> list[str]:
    """What the configuration would be warned of. Raises ConfigError, with `shown` for the file's name."""
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "config.json")
        with open(file, "w", encoding="utf-8", errors="surrogatepass") as out:
            out.write(text_of(content))
        try:
            return _load(file)[1]
        except ConfigError as error:
            raise ConfigError(str(error).replace(file, shown)) from None


def read(path: str) -> tuple[Config, list[str]]:
    """A configuration that is there, and what it is warned of. Raises ConfigError."""
    return _load(path)


def _load(path: str) -> tuple[Config, list[str]]:
    told: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    handler, propagate, handlers = Collect(), logger.propagate, logger.handlers[:]
    logger.handlers[:], logger.propagate = [handler], False
    try:
        return load_config(path), told
    finally:
        logger.handlers[:], logger.propagate = handlers, propagate


def check_place(path: str, script: Path) -> None:
    """Raises UsageError where no configuration can be: in the place of a directory, a device or the script, or in no directory."""
    if not path.strip() or "\0" in path:
        raise UsageError(f"--config is {path!r}: it must be the path of a file, for example ./config.json")
    target = Path(os.path.realpath(path))
    try:
        there = os.stat(target)
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise UsageError(f"{path}: there is no directory {target.parent}: make it first, or name another file with --config") from None
        return
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from None
    if stat.S_ISDIR(there.st_mode):
        raise UsageError(f"--config {path} is a directory: name a file, for example {os.path.join(path, 'config.json')}")
    if not stat.S_ISREG(there.st_mode):
        raise UsageError(f"--config {path} is no file, so it is not replaced: name another one")
    if target == script:
        raise UsageError(f"--config {path} is the script itself: name another file")


def write(path: Path, content: dict[str, Any]) -> None:
    """Writes it, whole or not at all; a link keeps leading to the file. `check_place` has let it pass. Raises UsageError."""
    target = path.resolve() if path.is_symlink() else path
    try:
        write_whole(target, text_of(content).encode("utf-8", "surrogatepass"), like=target if target.exists() else None)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def raw(path: str) -> dict[str, Any] | None:
    """The object in a file; None where there is none."""
    try:
        return read_object(path, lambda text: None)
    except ConfigError:
        return None
