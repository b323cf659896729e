"""A callback for the Trainer of Lightning, `lightning.pytorch` and `pytorch_lightning` alike.

Trainer(callbacks=[MsprobeCallback(config_path="config.json")])
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from msprobe.errors import MissingPackageError
from msprobe.integrations.steps import RecordsSteps, contained

__all__ = ["MsprobeCallback"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""Two names of one thing, with classes of their own: a Trainer of one refuses nothing of the other, but must not be made to import it."""


def _bases() -> tuple[Any, ...]:
    """The Callback classes of what is loaded, or else of what is installed.

    Raises:
        MissingPackageError: neither is installed.
    """
    loaded = [name for name in _PACKAGES if name in sys.modules]
    if not loaded:
        loaded = [name for name in _PACKAGES if importlib.util.find_spec(name.partition(".")[0]) is not None][:1]
    if not loaded:
        raise MissingPackageError("neither lightning nor pytorch_lightning is installed: pip install lightning")
    return tuple(importlib.import_module(name).Callback for name in loaded)


_made: dict[Any, Any] = {}


def _with_bases(cls: Any, bases: tuple[Any, ...]) -> Any:
    """A subclass of `cls` that is a Callback of each of these packages."""
    key = (cls, *bases)
    if key not in _made:
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        _made[key] = type(cls)(cls.__name__, (cls, *bases), names)
    return _made[key]


def _again(cls: Any, state: dict[str, Any]) -> Any:
    """A callback from its pickle."""
    made = cls.__new__(cls)
    made.__dict__.update(state)
    return made


class MsprobeCallback(RecordsSteps):
    """Records the training steps of a Lightning Trainer.

    A step is one batch, or as many as gradients are accumulated over (`accumulate_grad_batches`, or optimizers that the user steps), with
    all optimizers in it. Its number is that of the steps done before, from 0, also after resuming from a checkpoint; later trainings of the
    same process count on. The model is recorded as the strategy wraps it (DistributedDataParallel, ...). The sanity check is never
    recorded.

    Args:
        config_path, task, dump_path, level, step: as PrecisionDebugger takes them.
        debugger: a PrecisionDebugger, instead of them. Without either: the one that is there, or the packaged configuration.
        evaluation: record validation, test and prediction too. Each of their batches is a step, and the numbers go on counting.

    Raises:
        ConfigError, UsageError: as PrecisionDebugger.
        MissingPackageError: Lightning is not installed.
    """

    _original: type

    def __new__(cls, *args: Any, **kwargs: Any) -> MsprobeCallback:
        made: MsprobeCallback = object.__new__(_with_bases(cls, _bases()))
        made._original = cls
        return made

    def _prepare(self) -> None:
        self._counting = self._accumulating = self._stepped = False
        self._done = 0
        self._watching: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._original, {**self.__dict__, "_watching": None})

    # --- training -------------------------------------------------------------------------------------------------------------------
    @contained
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._end()
        self._counting = False
        if self._watching is None:
            self._watching = register_optimizer_step_post_hook(self._optimizer_stepped)

    def _optimizer_stepped(self, *_: Any) -> None:
        self._stepped = True

    @contained
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if not self._counting:  # only here is known what was done before the checkpoint
            self._counting = True
            self._steps.count_from(_steps_done(trainer, pl_module))
        if self._steps.running:
            self._steps.go_on(_model(trainer, pl_module))
        else:
            self._stepped, self._done = False, trainer.global_step
            self._steps.begin(_model(trainer, pl_module))

    @contained
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        # GradScaler leaves a step out that Lightning counts; an optimizer that the user calls past Lightning is counted by nobody else.
        if self._stepped or trainer.global_step != self._done:
            self._accumulating = False
            self._steps.end()
        else:
            self._accumulating = True
            self._steps.pause()  # gradients are accumulated; the loader and validation come in between

    @contained
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if pl_module.automatic_optimization:  # else the user's next optimizer step, an epoch later, uses their gradients
            self._accumulating = False
            self._steps.end()  # batches that no optimizer step came for

    @contained
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end()

    @contained
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(exception)

    @contained
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._end()

    def _end(self, error: BaseException | None = None) -> None:
        self._accumulating = False
        self._steps.end(error)
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.remove()

    # --- validation, test, prediction -----------------------------------------------------------------------------------------------
    @contained
    def _batch_begins(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        if not self._evaluation:
            self._steps.explain("validation, test and prediction are recorded by MsprobeCallback(evaluation=True) only")
        elif self._steps.running:
            self._steps.go_on(_model(trainer, pl_module))  # in the middle of a step, and part of it
        else:
            self._steps.begin(_model(trainer, pl_module))

    @contained
    def _batch_ends(self, trainer: Any) -> None:
        if trainer.sanity_checking or not self._evaluation:
            return
        if self._accumulating:
            self._steps.pause()
        else:
            self._steps.end()

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        self._batch_begins(trainer, pl_module)

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        self._batch_ends(trainer)

    def on_test_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        self._batch_begins(trainer, pl_module)

    def on_test_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        self._batch_ends(trainer)

    def on_predict_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        self._batch_begins(trainer, pl_module)

    def on_predict_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        self._batch_ends(trainer)


def _model(trainer: Any, pl_module: Any) -> Any:
    """The outermost wrapper of the model."""
    wrapped = getattr(trainer, "model", None)
    return pl_module if wrapped is None else wrapped


def _steps_done(trainer: Any, pl_module: Any) -> int:
    """How many batches, or groups of accumulated ones, were trained before.

    `global_step` counts each of several optimizers; what counts batches is private, and without it the count begins with `global_step`.
    """
    done = int(trainer.global_step)
    if pl_module.automatic_optimization:
        return done
    return int(getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", done))
