"""Callbacks for `mindspore.train.Model.train`: every training step is a step of the debugger."""

# mypy: disable-error-code="misc"
from __future__ import annotations

from typing import Any

from mindspore.train import Callback

from msprobe.errors import UsageError
from msprobe.mindspore.debugger import PrecisionDebugger


class MsprobeStep(Callback):
    """Calls start before each training step, stop and step after it.

    Args:
        debugger: the PrecisionDebugger of the process.

    Raises:
        UsageError: `debugger` is something else.
    """

    def __init__(self, debugger: PrecisionDebugger) -> None:
        super().__init__()
        if not (isinstance(debugger, PrecisionDebugger) or debugger is PrecisionDebugger):
            raise UsageError(f"MsprobeStep(debugger): debugger is {debugger!r}; allowed: the PrecisionDebugger")
        self._debugger = debugger

    def on_train_step_begin(self, run_context: Any) -> None:
        """The network that is trained is the model: names begin with `Cell.network`."""
        self._debugger.start(run_context.original_args().train_network)

    def on_train_step_end(self, run_context: Any) -> None:
        """The step is over."""
        self._debugger.stop()
        self._debugger.step()


class MsprobeInitStep(Callback):
    """Makes the debugger count on where an earlier training left off (`Model.train(initial_epoch=...)`)."""

    def on_train_begin(self, run_context: Any) -> None:
        """Steps are counted from the number of steps that the earlier epochs had."""
        parameters = run_context.original_args()
        PrecisionDebugger.set_init_step(max(0, int(getattr(parameters, "cur_step_num", 0) or 0)))
