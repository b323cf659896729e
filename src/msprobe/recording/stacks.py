"""Call stacks, as the text of stack.json and cheap enough to take at every call.

A stack is taken as a key made of numbers (code object, instruction); its text is made once for each distinct key, and keys with equal
texts share one `Stack`. What lies above the innermost open module is not walked again: the module's *anchor* stands for it.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Hashable
from types import CodeType, FrameType
from typing import NamedTuple

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIMIT = 50_000
"""Distinct stacks kept. Beyond it (code generated anew at each call) a stack's text is made each time and grouped with no other."""


class Stack:
    """One distinct stack; equal texts are one object.

    Attributes:
        text: its frames, innermost first, as stack.json shows them.
        marked: whether a frame of it runs one of the cache's marked code objects.
    """

    __slots__ = ("marked", "text")

    def __init__(self, text: list[str], marked: bool) -> None:
        self.text = text
        self.marked = marked


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


def walk_in_python(start: FrameType, stop: int, above: int, depth: int, counted: tuple[int, ...]) -> tuple[Hashable, int]:
    """A key for the frames from `start` outwards, and how many of them run a counted code object.

    Args:
        start: the innermost frame.
        stop: id of the frame where the walk ends; it is in the key but is not counted.
        above: number that stands for what is above that frame; part of the key where the walk gets there.
        depth: added to the count where the walk gets there.
        counted: ids of code objects.
    """
    frame: FrameType | None = start
    parts: list[int] = []
    count = 0
    while frame is not None:
        code = id(frame.f_code)
        parts.append(code)
        parts.append(frame.f_lasti)
        if id(frame) == stop:
            parts.append(above)
            return tuple(parts), count + depth
        if code in counted:
            count += 1
        frame = frame.f_back
    parts.append(0)
    return tuple(parts), count


walk: Callable[[FrameType, int, int, int, tuple[int, ...]], tuple[Hashable, int]] = walk_in_python
try:
    from msprobe.recording import _frames

    walk = _frames.walk
except ImportError:  # no compiler when msprobe was installed
    pass

_NO_ANCHOR = Anchor(0, 0, 0)


class StackCache:
    """Takes the stack of the running thread.

    Args:
        counted: ids of code objects; `take` also says how many of their frames are on the stack.
        marked: ids of code objects; a stack says whether they are on it.
    """

    def __init__(self, counted: frozenset[int] = frozenset(), marked: frozenset[int] = frozenset()) -> None:
        self._counted = tuple(counted)
        self._marked = marked
        self._known: dict[Hashable, Stack] = {}
        self._by_text: dict[tuple[str, ...], Stack] = {}
        self._numbers: dict[Hashable, int] = {}
        """Key of the frames above a module -> their number."""
        self._above: list[Stack] = [Stack([], False)]
        self._alive: list[CodeType] = []  # an id in a key stays valid only while its code object lives

    def take(self, skip: int, hidden: frozenset[int] = frozenset(), anchor: Anchor | None = None) -> tuple[Stack, int]:
        """The stack that is `skip` frames above the caller.

        Args:
            skip: frames to leave out, the caller's own being the first.
            hidden: ids of code objects whose frames are left out when they are innermost (an API's own Python frames).
            anchor: of the innermost open module.

        Returns:
            The stack, and how many frames of counted code objects there are.
        """
        frame = sys._getframe(skip)
        stop, above, depth = anchor or _NO_ANCHOR
        key, depth = walk(frame, stop, above, depth, self._counted)
        stack = self._known.get(key)
        if stack is None:
            stack = self.meet(key, frame, stop, above, hidden)
        return stack, depth

    def meet(self, key: Hashable, frame: FrameType, stop: int, above: int, hidden: frozenset[int]) -> Stack:
        """The stack that `walk` has given a new key for; the arguments are those of `walk` and `take`."""
        return self._keep(key, self._describe(frame, stop, above, hidden))

    def enter(self, skip: int, anchor: Anchor | None = None) -> tuple[Stack, Anchor]:
        """Like `take`, and the anchor of the frame that is `skip` frames above the caller."""
        frame = sys._getframe(skip)
        number = 0
        depth = 0
        outer = frame.f_back
        if outer is not None:
            stop, above, depth = anchor or _NO_ANCHOR
            rest, depth = walk(outer, stop, above, depth, self._counted)
            known = self._numbers.get(rest)
            if known is None:
                known = self.meet_above(rest, outer, stop, above)
            number = known
        code = id(frame.f_code)
        key = (code, frame.f_lasti, number)
        stack = self._known.get(key)
        if stack is None:
            stack = self.meet_module(key, frame, id(frame), number)
        return stack, Anchor(id(frame), number, depth + (code in self._counted))

    def meet_above(self, key: Hashable, outer: FrameType, stop: int, above: int) -> int:
        """The number for the frames from `outer` outwards that `walk` has given a new key for; the arguments are those of `walk`."""
        self._above.append(self._describe(outer, stop, above, frozenset()))
        number = self._numbers[key] = len(self._above) - 1
        return number

    def meet_module(self, key: Hashable, frame: FrameType, stop: int, number: int) -> Stack:
        """The stack of `frame`, whose id is `stop`, below the frames with this number, where its key is new."""
        return self._keep(key, self._describe(frame, stop, number, frozenset()))

    def _keep(self, key: Hashable, stack: Stack) -> Stack:
        if len(self._known) < _LIMIT:
            # Two calls on one line are one stack.
            stack = self._by_text.setdefault(tuple(stack.text), stack)
            self._known[key] = stack
        return stack

    def _describe(self, start: FrameType, stop: int, above: int, hidden: frozenset[int]) -> Stack:
        """The text of the stack that `walk` gives a key for."""
        lines: list[str] = []
        codes: list[CodeType] = []
        frame: FrameType | None = start
        rest = self._above[0]
        while frame is not None:
            code = frame.f_code
            codes.append(code)
            if not code.co_filename.startswith(_OURS) and not (not lines and id(code) in hidden):
                source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
                if source:
                    lines.append(f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {source}")
            if id(frame) == stop:
                rest = self._above[above]
                break
            frame = frame.f_back
        if len(self._known) < _LIMIT:
            self._alive += codes
        return Stack(lines + rest.text, rest.marked or not self._marked.isdisjoint(map(id, codes)))
