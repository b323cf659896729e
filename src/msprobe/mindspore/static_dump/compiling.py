"""A graph that does not compile with taps in it compiles without them: the training goes on, and it is told that nothing is recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.mindspore.dump.patches import Patches
from msprobe.mindspore.mindspore_internals import cell_executor, jit_executor
from msprobe.mindspore.static_dump.recorder import RECORDER


class Taps:
    """What was put into a model, and how it is taken out again."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._hooks: list[Callable[[], None]] = []
        self._patches = Patches()
        for executor in (jit_executor, cell_executor):
            if executor is not None and "compile" in vars(executor):
                self._patches.add(executor, "compile", self._second_try(vars(executor)["compile"]))
        self._patches.apply()

    def exchange_construct(self, cell: Any, construct: Any) -> None:
        """Another `construct` for one cell."""
        own = vars(cell).get("construct")
        cell.construct = construct

        def back() -> None:
            if own is not None:
                cell.construct = own
            elif "construct" in vars(cell):
                del cell.construct

        self._undo.append(back)

    def hook(self, parameter: Any, hook: Callable[[Any], Any]) -> None:
        """A hook on a parameter."""
        handle = parameter.register_hook(hook)
        self._hooks.append(handle.remove)

    def take_out(self) -> None:
        """The model is as it was, for what is compiled from here on."""
        self.take_hooks_out()
        undo, self._undo = self._undo, []
        _run(undo)
        self._patches.undo()

    def take_hooks_out(self) -> None:
        """The parameters are as they were."""
        hooks, self._hooks = self._hooks, []
        _run(hooks)

    def _second_try(self, compiles: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compiles)
        def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return compiles(executor, *args, **kwargs)
            except Exception as error:
                let_through(error)
                if not self._undo:
                    raise
                reason = _reason(error)
            if self._hooks:  # a hook on a parameter that no gradient comes to is too much for MindSpore (2.10)
                self.take_hooks_out()
                try:
                    result = compiles(executor, *args, **kwargs)
                    logger.warning(
                        "gradients of parameters are not recorded: MindSpore does not compile this model with hooks on them, "
                        f"which it cannot where one of them gets no gradient (stop_gradient): {reason}"
                    )
                    return result
                except Exception as error:
                    let_through(error)
                    reason = _reason(error)
            self.take_out()
            RECORDER.cells.clear()
            result = compiles(executor, *args, **kwargs)  # what it raises now is the user's
            logger.warning(f"nothing is recorded: MindSpore does not compile this model with taps in it, and runs it without: {reason}")
            return result

        return compile


def _reason(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _run(undo: list[Callable[[], None]]) -> None:
    for back in reversed(undo):
        try:
            back()
        except Exception as error:
            let_through(error)
            logger.warning(f"a tap could not be taken out: {error!r}")
