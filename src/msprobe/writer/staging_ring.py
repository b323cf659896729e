"""Memory that is used again and again for what waits to be written."""

from __future__ import annotations

import mmap
from collections import deque


class _Span:
    """Where something lies, or lay."""

    __slots__ = ("done", "end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.done = False


class Place:
    """A part of the ring that holds something; nobody else gets it before this object is gone."""

    __slots__ = ("_span", "memory")

    def __init__(self, span: _Span, memory: memoryview) -> None:
        self._span = span
        self.memory = memory

    def __del__(self) -> None:
        # An interruption may take a place from whoever was about to use it: so it is given back here, and needs no lock.
        self._span.done = True


class StagingRing:
    """Gives places to what comes, in the order in which it comes; a place that is given back is used again once all before it are.

    New memory for every value would cost more than copying the value: the system has to find and clear it.

    Args:
        size: bytes; taken from the system when they are first needed, and as far as they are.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._memory: memoryview | None = None
        self._spans: deque[_Span] = deque()

    def take(self, nbytes: int) -> Place | None:
        """A place for so many bytes, at least one; None where there is none now. One call at a time: the caller has a lock."""
        start = self._start(nbytes)
        if start is None:
            return None
        if self._memory is None:
            try:
                self._memory = _new_memory(self._size)
            except (OSError, MemoryError):
                return None
        span = _Span(start, start + nbytes)
        place = Place(span, self._memory[start : span.end])
        self._spans.append(span)
        return place

    def _start(self, nbytes: int) -> int | None:
        spans = self._spans
        while spans and spans[0].done:
            spans.popleft()
        if not spans:
            return 0 if nbytes <= self._size else None
        first, end = spans[0].start, spans[-1].end
        if end > first:
            if end + nbytes <= self._size:
                return end
            end = 0
        return end if end + nbytes <= first else None


def _new_memory(size: int) -> memoryview:
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return memoryview(bytearray(size))
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without them
            pass
    return memoryview(memory)
