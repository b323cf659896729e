"""Calls whose backward pass comes after step() has ended their step: their gradients are lost, and that is told."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.log import logger
from msprobe.writer.appended_lines import AppendedLines

_MOST_LINES = 10_000
_WHY = "its backward pass came after step() had ended this step: not recorded"
_WHAT_TO_DO = "call step() after backward() (where two optimizers take turns, as in a GAN: one step() after both)"


class LateInStep:
    """What comes too late for one step; all that observers of it need to keep, which may stay in a graph for long."""

    def __init__(self) -> None:
        self._tell: Callable[[str], None] | None = None
        self._waiting: deque[str] = deque()
        """What came, in another thread, while the step was being ended."""

    def came(self, name: str) -> None:
        """The backward pass of a call came after its step had ended, or while it did. Never raises.

        Args:
            name: of the entry that it would have had.
        """
        self._waiting.append(name)
        self._tell_waiting()

    def tell_to(self, tell: Callable[[str], None]) -> None:
        """The step has ended: `tell` what has come, and from now on what comes."""
        self._tell = tell
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        tell = self._tell
        while tell is not None and self._waiting:
            try:
                name = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            tell(name)


class LateCalls:
    """What comes too late in a process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._told = False
        self.all = 0
        """Calls that came too late, each time they did."""
        self.untold = 0
        """Those that no closing line has told yet."""
        self.what_to_do = _WHAT_TO_DO

    def of_step(self, step: int, directory: str) -> Callable[[str], None]:
        """Gives what tells of the calls of an ended step.

        Args:
            step: the step's number.
            directory: where its files are.
        """
        log = AppendedLines(os.path.join(directory, layout.ERRORS))
        names: set[str] = set()

        def came(name: str) -> None:
            try:
                if os.getpid() != self._pid:
                    return
                self.all += 1
                self.untold += 1
                if name not in names and len(names) < _MOST_LINES:
                    names.add(name)
                    log.add(f"{name}: {_WHY}")
                if not self._told:
                    self._told = True
                    logger.warning(
                        f"a backward pass came after step() had ended step {step}, in which its forward was recorded: these gradients are "
                        f"lost, {layout.ERRORS} of that step names the calls; {self.what_to_do}"
                    )
            except Exception as caught:
                let_through(caught)  # the backward pass is the user's: nothing of ours may end it

        return came

    def take(self) -> int:
        """How many calls came too late, and no closing line has told it yet."""
        late, self.untold = self.untold, 0
        return late

    def tell_rest(self) -> None:
        """The interpreter ends: say what no closing line could."""
        late = self.take() if os.getpid() == self._pid else 0
        if late:
            logger.warning(
                f"calls whose backward pass came after their step had ended: {late}; their gradients are lost: {self.what_to_do}"
            )
