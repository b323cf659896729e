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

_NO_HOOKS = (
    "gradients of parameters are not recorded: MindSpore does not compile this model with hooks on them, which it cannot where one of them "
    "gets no gradient (stop_gradient)"
)
_NO_GRADIENTS = "no gradients are recorded: MindSpore does not compile this model with taps for them (second derivatives?)"


class Taps:
    """What was put into a model, and how it is taken out again."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._hooks: list[Callable[[], None]] = []
        self._gradients: list[Callable[[], None]] = []
        self._patches = Patches()
        for executor in (jit_executor, cell_executor):
            if executor is not None and "compile" in vars(executor):
                self._patches.add(executor, "compile", self._second_try(vars(executor)["compile"]))
        self._patches.apply()

    def exchange_construct(self, cell: Any, construct: Any, without_gradients: Any = None) -> None:
        """Another `construct` for one cell; and the one to use where MindSpore does not compile taps for gradients, where there is one."""
        own = vars(cell).get("construct")
        cell.construct = construct
        if without_gradients is not None:
            self._gradients.append(lambda: setattr(cell, "construct", without_gradients))

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

    def take_hooks_out(self) -> bool:
        """The parameters are as they were; gives whether there were hooks."""
        hooks, self._hooks = self._hooks, []
        _run(hooks)
        return bool(hooks)

    def take_gradients_out(self) -> bool:
        """What is left records the forward part; gives whether there was more."""
        gradients, self._gradients = self._gradients, []
        _run(gradients)
        return bool(gradients)

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
            # MindSpore (2.10) compiles no hook on a parameter that no gradient comes to, and no second derivatives with taps in them
            for take_out, told in ((self.take_hooks_out, _NO_HOOKS), (self.take_gradients_out, _NO_GRADIENTS)):
                if take_out():
                    try:
                        result = compiles(executor, *args, **kwargs)
                    except Exception as error:
                        let_through(error)
                        reason = _reason(error)
                    else:
                        logger.warning(f"{told}: {reason}")
                        return result
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
