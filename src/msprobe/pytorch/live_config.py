"""The configuration file while training runs: looked at by every start(), read again when it has changed."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import stat
import time
from collections.abc import Mapping
from typing import Any

from msprobe.config import Config, load_config
from msprobe.config.result import DataMode
from msprobe.contain import let_through
from msprobe.errors import ConfigError
from msprobe.log import logger

_Stamp = tuple[int, int, int]
_LARGEST = 16 << 20
_FRESH = 50_000_000
"""Nanoseconds: a file that was written so short a time ago may be written once more with the same time and size."""
_FIXED = ("framework", "source", "dump_enable")
"""Fields that no change of the file is told of: they cannot change, or are told in other words."""


class LiveConfig:
    """A configuration, and what becomes of its file.

    The file is watched where it holds `dump_enable` when the debugger is made. One look is one `os.stat`.

    Args:
        path: as the user gave it; None for the packaged defaults, which nobody watches.
        arguments: of the constructor; they go before the file, also later.
        told: what is to be said of the configuration was said before, in another process.

    Raises:
        ConfigError: the file or an argument is wrong.
    """

    def __init__(self, path: str | os.PathLike[str] | None, arguments: Mapping[str, Any], told: bool = False) -> None:
        self._arguments = dict(arguments)
        self._stamp: _Stamp | None = None
        self._content = b""
        self._told: set[str] = set()
        stamp = self._look_at(path) if path is not None else None  # before it is read: what comes later is a change
        self.config = load_config(path, framework="pytorch", told=told, **self._arguments)
        """The latest valid one."""
        self.watched = stamp is not None and self.config.dump_enable is not None
        self._path = os.path.abspath(self.config.source)
        self._fields: dict[str, Any] = {}
        if self.watched:
            self._fields = self._as_written(self._content)

    def _look_at(self, path: Any) -> _Stamp | None:
        try:
            path = os.path.expanduser(os.fspath(path))
            self._stamp = stamp = _stamp_of(path)
            with open(path, "rb") as file:
                self._content = file.read()
        except (OSError, ValueError, TypeError):
            return None  # load_config tells what is wrong with it
        return stamp

    def changed(self) -> Config | None:
        """The new configuration if the file has changed since the last look; None if not, or if it cannot be used.

        A file that is half written, wrong or gone changes nothing; one warning says so.
        """
        try:
            stamp = _stamp_of(self._path)
        except OSError as error:
            self._warn(f"{self._path} cannot be read ({error.strerror}): recording goes on as it last said")
            return None
        if stamp == self._stamp:
            return None
        try:
            return self._read_again(stamp)
        except Exception as error:
            let_through(error)
            self._warn(f"{self._path} has changed, and could not be used: {error!r}; recording goes on as before")
            return None

    def _read_again(self, stamp: _Stamp) -> Config | None:
        # A file that is only just written is looked at once more next time: its time may not tell a second change from the first.
        self._stamp = stamp if time.time_ns() - stamp[0] > _FRESH else None
        try:
            with open(self._path, "rb") as file:
                content = file.read()
            if content == self._content:
                return None
            new = load_config(self._path, framework="pytorch", **self._arguments)
            self._content = content
        except (ConfigError, OSError) as error:
            self._warn(f"{self._path} has changed, and cannot be used; recording goes on as before:\n{error}")
            return None
        self._told.clear()
        self._tell_without_effect(content)
        before, self.config = self.config, new
        return None if new == before else new

    def _tell_without_effect(self, content: bytes) -> None:
        """Fields of the file that an argument of the constructor replaces, and that somebody has changed."""
        fields = self._as_written(content)
        for name, value in self._arguments.items():
            if value is not None and name in fields and fields[name] != self._fields.get(name):
                given = f"PrecisionDebugger({name}={value!r})"
                logger.warning(f'{self._path}: "{name}" has changed, without effect: {given} was given, which goes before the file')
        self._fields = fields

    @staticmethod
    def _as_written(content: bytes) -> dict[str, Any]:
        try:
            fields = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}

    def _warn(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            logger.warning(text)


def changes(old: Config, new: Config) -> list[str]:
    """What is different, as `"level" "L0" -> "mix"`; `dump_enable` is left out."""
    found = [
        f'"{field.name}" {_shown(before)} -> {_shown(after)}'
        for field in dataclasses.fields(Config)
        if field.name not in (*_FIXED, "section") and (before := getattr(old, field.name)) != (after := getattr(new, field.name))
    ]
    for field in dataclasses.fields(new.section):
        before, after = getattr(old.section, field.name), getattr(new.section, field.name)
        if before != after:
            found.append(f'"{new.task}"."{field.name}" {_shown(before)} -> {_shown(after)}')
    return found


def _stamp_of(path: str) -> _Stamp:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
        raise OSError(errno.EINVAL, "not a file of a configuration's size")  # reading a pipe or a device might never end
    return found.st_mtime_ns, found.st_size, found.st_ino


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        value = sorted(value)
    elif isinstance(value, DataMode):
        value = [name for name, chosen in dataclasses.asdict(value).items() if chosen]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value, ensure_ascii=False, default=lambda rest: sorted(rest) if isinstance(rest, frozenset) else repr(rest))
