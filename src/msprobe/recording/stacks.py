"""Call stacks, as the text of stack.json and cheap enough to take at every call.

A stack is taken as a tuple of numbers (code object, line); the text is made once for each distinct stack. What lies above the innermost
open module is not walked again: the module's *anchor* stands for it.
"""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType
from typing import NamedTuple

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIMIT = 50_000
"""Distinct stacks kept. Beyond it (code generated anew at each call) a stack's text is made each time and grouped with no other."""

StackKey = tuple[int, ...]


class Anchor(NamedTuple):
    """A frame on the stack with everything above it known.

    Attributes:
        frame: id of the frame object.
        above: number that stands for the frames above it.
        depth: how many frames of counted code objects there are from it upwards.
    """

    frame: int
    above: int
    depth: int


_NO_ANCHOR = Anchor(0, 0, 0)


class StackCache:
    """Takes the stack of the running thread.

    Args:
        counted: ids of code objects; `take` also says how many of their frames are on the stack.
    """

    def __init__(self, counted: frozenset[int] = frozenset()) -> None:
        self._counted = counted
        self._text: dict[StackKey, list[str]] = {}
        self._above: dict[StackKey, int] = {}
        self._above_text: list[list[str]] = [[]]
        self._unkept: dict[StackKey, list[str]] = {}
        self._loose = 0
        self._alive: list[CodeType] = []  # an id in a key stays valid only while its code object lives

    def take(self, skip: int, hidden: frozenset[int] = frozenset(), anchor: Anchor | None = None) -> tuple[StackKey, int]:
        """The stack that is `skip` frames above the caller.

        Args:
            skip: frames to leave out, the caller's own being the first.
            hidden: ids of code objects whose frames are left out when they are innermost (an API's own Python frames).
            anchor: of the innermost open module.

        Returns:
            A key for `text`, and how many frames of counted code objects there are.
        """
        frame = sys._getframe(skip)
        key, depth = self._walk(frame, anchor or _NO_ANCHOR)
        if key not in self._text:
            key = self._keep(key, self._describe(frame, key, hidden))
        return key, depth

    def enter(self, skip: int, anchor: Anchor | None = None) -> tuple[StackKey, Anchor]:
        """Like `take`, and the anchor of the frame that is `skip` frames above the caller."""
        frame = sys._getframe(skip)
        above = 0
        depth = 0
        outer = frame.f_back
        if outer is not None:
            rest, depth = self._walk(outer, anchor or _NO_ANCHOR)
            known = self._above.get(rest)
            if known is None:
                text = self._describe(outer, rest, frozenset())
                self._above_text.append(text)
                known = self._above[rest] = len(self._above_text) - 1
            above = known
        code = id(frame.f_code)
        key: StackKey = (code, frame.f_lineno, -above)
        if key not in self._text:
            key = self._keep(key, self._describe(frame, key, frozenset()))
        return key, Anchor(id(frame), above, depth + (code in self._counted))

    def text(self, key: StackKey) -> list[str]:
        """The frames of a stack, innermost first, as stack.json shows them."""
        return self._text.get(key) or self._unkept.pop(key, [])

    def _keep(self, key: StackKey, text: list[str]) -> StackKey:
        if len(self._text) < _LIMIT:
            self._text[key] = text
            return key
        self._loose += 1
        key = (-self._loose,)
        self._unkept = {key: text}
        return key

    def _walk(self, start: FrameType, anchor: Anchor) -> tuple[StackKey, int]:
        frame: FrameType | None = start
        stop, above, depth = anchor
        counted = self._counted
        parts: list[int] = []
        count = 0
        while frame is not None:
            code = id(frame.f_code)
            parts.append(code)
            parts.append(frame.f_lineno)
            if id(frame) == stop:
                parts.append(-above)
                return tuple(parts), count + depth
            if code in counted:
                count += 1
            frame = frame.f_back
        parts.append(0)
        return tuple(parts), count

    def _describe(self, start: FrameType, key: StackKey, hidden: frozenset[int]) -> list[str]:
        lines: list[str] = []
        frame: FrameType | None = start
        for _ in range(len(key) // 2):
            if frame is None:
                break
            code = frame.f_code
            if len(self._text) < _LIMIT:
                self._alive.append(code)
            if not code.co_filename.startswith(_OURS) and not (not lines and id(code) in hidden):
                source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
                if source:
                    lines.append(f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {source}")
            frame = frame.f_back
        return lines + self._above_text[-key[-1]]
