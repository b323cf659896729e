"""What start switches on and stop switches off again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msprobe.mindspore.dump.api_dump.jit_calls import keep_out_of_compilation, watch_jit
from msprobe.mindspore.dump.api_dump.watching import watch_functions, watch_primitives
from msprobe.mindspore.dump.cell_dump.calls import watch_cells
from msprobe.mindspore.dump.patches import Patches
from msprobe.mindspore.dump.recorder import Recorder


class Window:
    """Everything that is exchanged while calls are recorded.

    Args:
        recorder: gets the calls.
        level: L0, L1 or mix.
        model: what start() was given.
    """

    def __init__(self, recorder: Recorder, level: str, model: Any) -> None:
        self._recorder = recorder
        self._patches = Patches()
        self.watched = watch_cells(recorder, self._patches, model) if level != "L1" else 0
        if level != "L0":
            watch_functions(recorder, self._patches)
            watch_primitives(recorder, self._patches, model)
            watch_jit(recorder, self._patches)

    def open(self) -> None:
        """Calls are recorded from here."""
        self._patches.apply()

    def close(self) -> None:
        """Everything is as it was."""
        self._patches.undo()


class CompilationGuard:
    """From the first start() to the end of the step: keeps ours, hooks on parameters too, out of what MindSpore compiles."""

    def __init__(self, recorder: Recorder) -> None:
        self.window: Window | None = None
        self._recorder = recorder
        self._patches = Patches()
        self._depth = 0
        self.step: Any = None
        keep_out_of_compilation(self._patches, self._away)

    def open(self) -> None:
        """It is in effect."""
        self._patches.apply()

    def close(self) -> None:
        """It is gone."""
        self._patches.undo()

    @contextmanager
    def _away(self) -> Iterator[None]:
        window, step = self.window, self.step
        self._depth += 1
        if self._depth > 1 or step is None:
            try:
                yield
            finally:
                self._depth -= 1
            return
        step.parameter_gradients.take_off()
        if window is not None:
            window.close()
        try:
            yield
        finally:
            self._depth -= 1
            if window is not None and window is self.window:
                window.open()
            if not step.closed:
                step.parameter_gradients.put_on()
