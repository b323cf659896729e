"""Call stacks, as the text of stack.json and cheap enough to take at every call.

A stack is taken as a tuple of numbers (code object, line); the text is made once for each distinct stack.
"""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIMIT = 50_000
"""Distinct stacks kept. Beyond it (code generated anew at each call) the cache starts again."""

StackKey = tuple[int, ...]


class StackCache:
    """Takes the stack of the running thread.

    Args:
        counted: ids of code objects; `take` also says how many of their frames are on the stack.
    """

    def __init__(self, counted: frozenset[int] = frozenset()) -> None:
        self._counted = counted
        self._text: dict[StackKey, list[str]] = {}
        self._alive: list[CodeType] = []  # an id in a key stays valid only while its code object lives

    def take(self, skip: int, hidden: frozenset[int] = frozenset()) -> tuple[StackKey, int]:
        """The stack that is `skip` frames above the caller.

        Args:
            skip: frames to leave out, the caller's own being the first.
            hidden: ids of code objects whose frames are left out when they are innermost (an API's own Python frames).

        Returns:
            A key for `text`, and how many frames of counted code objects there are.
        """
        parts: list[int] = []
        counted = self._counted
        depth = 0
        frame: FrameType | None = sys._getframe(skip)
        while frame is not None:
            code = id(frame.f_code)
            if code in counted:
                depth += 1
            parts.append(code)
            parts.append(frame.f_lineno)
            frame = frame.f_back
        key = tuple(parts)
        if key not in self._text:
            self._describe(key, sys._getframe(skip), hidden)
        return key, depth

    def text(self, key: StackKey) -> list[str]:
        """The frames of a stack, innermost first, as stack.json shows them."""
        return self._text.get(key, [])

    def _describe(self, key: StackKey, frame: FrameType | None, hidden: frozenset[int]) -> None:
        if len(self._text) >= _LIMIT:
            self._text.clear()
            self._alive.clear()
        lines: list[str] = []
        while frame is not None:
            code = frame.f_code
            self._alive.append(code)
            if not code.co_filename.startswith(_OURS) and not (not lines and id(code) in hidden):
                source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
                if source:
                    lines.append(f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {source}")
            frame = frame.f_back
        self._text[key] = lines
