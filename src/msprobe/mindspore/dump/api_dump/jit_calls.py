"""Functions that jit has compiled: their calls are APIs, and while one is compiled nothing of ours is there to be compiled too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from mindspore import nn

from msprobe.mindspore.dump.patches import Patches
from msprobe.mindspore.dump.recorder import Recorder
from msprobe.mindspore.mindspore_internals import cell_executor, jit_executor


def watch_jit(recorder: Recorder, patches: Patches) -> None:
    """Have the calls of compiled functions recorded, as `Jit.{function}`."""
    if jit_executor is None:
        return
    run = jit_executor.__call__

    @functools.wraps(run)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        step, state = recorder.step, recorder.state
        if step is None or state.inside:
            return run(self, *args, **kwargs)
        # The cell whose method was compiled is no argument; neither are ours.
        skipped = 2 if args and isinstance(args[0], nn.Cell) else 1
        return recorder.api(f"Jit.{getattr(self.fn, '__name__', 'function')}", run, (self, *args), kwargs, skipped)

    patches.add(jit_executor, "__call__", __call__)


def keep_out_of_compilation(guards: Patches, away: Callable[[], AbstractContextManager[None]]) -> None:
    """Have `away()` entered while MindSpore compiles something: the compiler reads the source of whatever stands where it looks."""
    for executor in (jit_executor, cell_executor):
        if executor is not None and "compile" in vars(executor):
            guards.add(executor, "compile", _guarded(vars(executor)["compile"], away))


def _guarded(compiles: Callable[..., Any], away: Callable[[], AbstractContextManager[None]]) -> Callable[..., Any]:
    @functools.wraps(compiles)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        with away():
            return compiles(self, *args, **kwargs)

    return compile
