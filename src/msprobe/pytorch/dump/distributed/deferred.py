"""The output of a communication that still runs when its call returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Deferred:
    """What a recorded call gives to the recorder instead of its output.

    The recorder hands it two functions (`keep`) and leaves the entry open; one of them is called, once, when the communication is done or
    when it is known that nobody will tell.

    Args:
        output: the values that are the call's output once it is done.
        kept: called when the recorder has taken it.
    """

    def __init__(self, output: tuple[Any, ...], kept: Callable[[], None]) -> None:
        self._output = output
        self._kept = kept
        self._done: Callable[[Any], None] | None = None
        self._lost: Callable[[str], None] | None = None

    def keep(self, done: Callable[[Any], None], lost: Callable[[str], None]) -> None:
        """Take the functions of the recorder.

        Args:
            done: `done(output)` completes the entry.
            lost: `lost(reason)` ends the entry without an output.
        """
        self._done, self._lost = done, lost
        self._kept()

    def complete(self) -> None:
        """The communication is done: its output is read now."""
        done, self._done = self._done, None
        output, self._output = self._output, ()
        if done is not None:
            done(output)

    def give_up(self, reason: str) -> None:
        """Nobody will tell when it is done, or its values are no longer those."""
        self._output = ()
        if self._done is not None and self._lost is not None:
            self._done = None
            self._lost(reason)
