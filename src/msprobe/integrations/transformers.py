"""A callback for `transformers.Trainer`: one optimizer step of the Trainer is one step of the recording.

Trainer(..., callbacks=[MsprobeCallback(config_path="config.json")])
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from msprobe.integrations.steps import RecordsSteps, contained, needed
from msprobe.integrations.watched_methods import WatchedMethods

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MsprobeCallback"]

_transformers: Any = needed("transformers", "transformers")
_Base: Any = _transformers.TrainerCallback


class MsprobeCallback(RecordsSteps, _Base):  # type: ignore[misc]
    """Records the training steps of a Trainer.

    A step has all its micro-batches (gradient accumulation), clipping and the optimizer in it; its number is the `global_step` that the
    Trainer begins it with, from 0, also after resuming from a checkpoint. Later trainings of the same process count on. The model is
    recorded as the Trainer wraps it (DistributedDataParallel, ...).

    Args:
        config_path, task, dump_path, level, step: as PrecisionDebugger takes them.
        debugger: a PrecisionDebugger, instead of them. Without either: the one that is there, or the packaged configuration.
        evaluation: record evaluate() and predict() too. Each of their batches is a step, and the numbers go on counting.

    Raises:
        ConfigError, UsageError: as PrecisionDebugger.
    """

    def _prepare(self) -> None:
        self._trainer: Callable[[], Any] = _nobody
        self._at: int | None = None
        self._evaluates = False
        _trainer_methods.tell(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trainer": _nobody, "_evaluates": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _trainer_methods.tell(self)

    def _model(self, model: Any) -> Any:
        """The outermost wrapper of the model."""
        trainer = self._trainer()
        wrapped = getattr(trainer, "model_wrapped", None)
        return model if wrapped is None else wrapped

    @contained
    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self._steps.end()  # a training that ran out of memory begins anew with smaller batches (auto_find_batch_size)
        self._steps.count_from(state.global_step)

    @contained
    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        if self._steps.running and self._at == state.global_step:
            self._steps.go_on(self._model(model))  # after micro-batches that were left over; or it is in the list of callbacks twice
        else:
            self._at = state.global_step
            self._steps.begin(self._model(model))

    @contained
    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._steps.end()

    @contained
    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._steps.pause()  # micro-batches are left over: their gradients are in the optimizer's next step, an epoch later

    @contained
    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._steps.end()

    @contained
    def on_prediction_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._evaluates:
            self._steps.end()

    def run_train(self, trainer: Any, run: Callable[[], Any]) -> Any:
        """Trainer.train is called: `run` does what it does."""
        outer = self._trainer
        if outer() is trainer:
            return run()
        self._trainer = weakref.ref(trainer)
        error: BaseException | None = None
        try:
            return run()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._end(error)
            self._trainer = outer

    @contained
    def _end(self, error: BaseException | None) -> None:
        self._steps.end(error)

    def run_evaluation(self, trainer: Any, run: Callable[[], Any]) -> Any:
        """Trainer.evaluation_loop is called, for evaluate() and predict()."""
        if not self._evaluation:
            self._steps.explain("evaluate() and predict() are recorded by MsprobeCallback(evaluation=True) only")
            return run()
        if self._steps.paused:
            return self._inside_of_step(trainer, run)
        if self._evaluates or self._steps.running:
            return run()  # inside another one, or inside a training step, and part of it
        model = trainer.model

        @contained
        def begin(*_: Any) -> None:
            if self._evaluates and not self._steps.running:
                self._steps.begin(model)

        handle = model.register_forward_pre_hook(begin)
        error: BaseException | None = None
        self._evaluates = True
        try:
            return run()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._evaluates = False
            handle.remove()
            self._end(error)

    def _inside_of_step(self, trainer: Any, run: Callable[[], Any]) -> Any:
        """Micro-batches of an optimizer step are still to come, in the next epoch."""
        self._go_on(trainer)
        try:
            return run()
        finally:
            self._pause()

    @contained
    def _go_on(self, trainer: Any) -> None:
        self._steps.go_on(self._model(trainer.model))

    @contained
    def _pause(self) -> None:
        self._steps.pause()


def _nobody() -> None:
    """Stands for the Trainer while none is training."""


def _told(run_name: str) -> Callable[[Any, Callable[[], Any]], Any]:
    """Calls this method of every MsprobeCallback of the Trainer, one around the other, and inside of them what the Trainer does."""

    def around(trainer: Any, run: Callable[[], Any]) -> Any:
        callbacks = getattr(getattr(trainer, "callback_handler", None), "callbacks", ())
        for callback in callbacks:
            if isinstance(callback, MsprobeCallback):
                run = _inside(getattr(callback, run_name), trainer, run)
        return run()

    return around


def _inside(outer: Callable[[Any, Callable[[], Any]], Any], trainer: Any, run: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: outer(trainer, run)


_trainer_methods = WatchedMethods(_transformers.Trainer, {"train": _told("run_train"), "evaluation_loop": _told("run_evaluation")})
"""A callback is told neither when a training ends by an exception nor when an evaluation begins: two methods of Trainer tell it."""
