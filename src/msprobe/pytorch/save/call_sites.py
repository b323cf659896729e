"""Where save() was called, for meta.json: one text for each line of the user's code, whatever the number of values."""

from __future__ import annotations

import linecache
import sys
from types import CodeType, FrameType
from typing import Any

from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.recording.unrecorded import Unrecorded

_OURS = 4
"""Frames between the user's call and the walk: note, SavedStep.save, Saving.save, PrecisionDebugger.save."""
_MOST_FRAMES = 6
"""Frames looked at and told, the innermost: the line, and who called it where it stands in a helper."""
_MOST_SITES = 10_000
"""Lines kept; of a program that makes its code as it goes there would be no end."""


class CallSites:
    """The lines of a process, each as `[File x.py, line 3, in f, ...]`, the innermost frame first, as stack.json has them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], list[str]] = {}
        self._by_text: dict[tuple[str, ...], list[str]] = {}
        self._alive: list[CodeType] = []  # an id in a key stays valid only while its code object lives

    def here(self) -> list[str]:
        """The line that called save(); equal ones are one object."""
        start = sys._getframe(_OURS + 1)
        frame: FrameType | None = start
        key: tuple[int, ...] = ()
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            key += id(frame.f_code), frame.f_lasti
            frame = frame.f_back
        return self._known.get(key) or self._describe(key, start)

    def _describe(self, key: tuple[int, ...], start: FrameType) -> list[str]:
        frames: list[str] = []
        frame: FrameType | None = start
        codes: list[CodeType] = []
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
            if source:
                frames.append(f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {source}")
            codes.append(code)
            frame = frame.f_back
        if len(self._known) >= _MOST_SITES:
            return frames
        self._alive += codes
        self._known[key] = frames = self._by_text.setdefault(tuple(frames), frames)  # two calls on one line are one site
        return frames


class SavedAt:
    """`saved_at` of one step's meta.json.

    Args:
        sites: of the process.
        meta: what becomes meta.json.
        unrecorded: is told what could not be noted.
    """

    def __init__(self, sites: CallSites, meta: dict[str, Any], unrecorded: Unrecorded) -> None:
        self._sites = sites
        self._unrecorded = unrecorded
        self._latest: dict[str, list[str]] = {}
        self._keys: dict[int, list[str]] = {}
        self._groups: list[list[list[str]]] = []
        self._left = _MOST_SITES
        meta[layout.SAVED_AT] = self._groups

    def note(self, name: str, key: str) -> None:
        """Note the line that saves a value; never raises. A key is listed only where the one before it of that name came from elsewhere.

        Args:
            name: what the user called the value.
            key: its key in debug.json.
        """
        try:
            frames = self._sites.here()
            if self._latest.get(name) is not frames:
                self._changed(name, key, frames)
        except Exception as error:
            let_through(error)
            self._unrecorded.report(key, f"the line that saves it could not be noted: {error!r}")

    def _changed(self, name: str, key: str, frames: list[str]) -> None:
        if not self._left:
            return
        self._left -= 1
        self._latest[name] = frames
        keys = self._keys.get(id(frames))
        if keys is None:
            keys = self._keys[id(frames)] = []
            self._groups.append([keys, frames])
        keys.append(key)
