"""Keeps the function mode on during backward passes and in threads started meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.mode import ApiMode
from msprobe.recording.calls import ThreadState


class BackwardWindow:
    """`loss.backward()` is a torch function itself, so torch takes the mode off for the whole backward pass.

    For the window, the engine is called through a function that puts the mode back on: recomputation by `torch.utils.checkpoint` and
    user-written backward functions are recorded like any other code.
    """

    def __init__(self, mode: ApiMode, state: ThreadState) -> None:
        self._mode, self._state = mode, state
        self._before: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None

    def on(self) -> None:
        """Wrap the engine's entry."""
        mode, state = self._mode, self._state

        def run_backward(*args: Any, **kwargs: Any) -> Any:
            if not mode.active or state.inside or state.mode is not mode:
                return before(*args, **kwargs)
            present = torch_internals.remove_mode(mode)
            torch_internals.insert_mode_at_bottom(mode)
            try:
                return before(*args, **kwargs)
            finally:
                if not present:
                    torch_internals.remove_mode(mode)

        before = torch_internals.current_run_backward()
        self._before, self._wrapper = before, run_backward
        torch_internals.replace_run_backward(run_backward)

    def off(self) -> None:
        """Restore the engine's entry, unless somebody else has replaced it since."""
        if self._before is not None and torch_internals.current_run_backward() is self._wrapper:
            torch_internals.replace_run_backward(self._before)
        self._before = None


class ThreadWindow:
    """Function modes belong to one thread: threads that start during the window enter the mode when they begin to run."""

    def __init__(self, mode: ApiMode, state: ThreadState) -> None:
        self._mode, self._state = mode, state
        self._before: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None

    def on(self) -> None:
        """Wrap `threading.Thread.run`."""
        mode, state = self._mode, self._state
        before = threading.Thread.run

        def run(thread: threading.Thread) -> None:
            if not mode.active or thread.name.startswith("msprobe-"):
                before(thread)
                return
            torch_internals.insert_mode_at_bottom(mode)
            state.mode = mode
            try:
                before(thread)
            finally:
                torch_internals.remove_mode(mode)

        self._before, self._wrapper = before, run
        threading.Thread.run = run  # type: ignore[method-assign, assignment]

    def off(self) -> None:
        """Restore `threading.Thread.run`, unless somebody else has replaced it since."""
        if self._before is not None and threading.Thread.run is self._wrapper:
            threading.Thread.run = self._before  # type: ignore[method-assign]
        self._before = None
