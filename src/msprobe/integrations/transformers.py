"""A callback for `transformers.Trainer`: one optimizer step of the Trainer is one step of the recording.

Trainer(..., callbacks=[MsprobeCallback(config_path="config.json")])
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import TYPE_CHECKING, Any

from msprobe.integrations.steps import Steps, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["MsprobeCallback"]

_transformers: Any = needed("transformers", "transformers")
_Base: Any = _transformers.TrainerCallback


class MsprobeCallback(_Base):  # type: ignore[misc]
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

    def __init__(
        self,
        config_path: str | None = None,
        *,
        debugger: Any = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: Iterable[int | str] | None = None,
        evaluation: bool = False,
    ) -> None:
        fields = {"config_path": config_path, "task": task, "dump_path": dump_path, "level": level, "step": step}
        self._steps = Steps(debugger, fields)
        self._evaluation = evaluation
        self._trainer: Callable[[], Any] = _nobody
        self._evaluates = False
        _watch_trainer()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trainer": _nobody}

    def _model(self, model: Any) -> Any:
        """The outermost wrapper of the model."""
        trainer = self._trainer()
        wrapped = getattr(trainer, "model_wrapped", None)
        return model if wrapped is None else wrapped

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self._steps.end()  # a training that ran out of memory begins anew with smaller batches (auto_find_batch_size)
        self._steps.count_from(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self._steps.begin(self._model(model))

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._steps.end()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._steps.end()  # micro-batches that the last optimizer step has left over

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._steps.end()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._evaluates:
            self._steps.end()

    def run_train(self, trainer: Any, run: Callable[[], Any]) -> Any:
        """Trainer.train is called: `run` does what it does."""
        self._trainer = weakref.ref(trainer)
        error: BaseException | None = None
        try:
            return run()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._steps.end(error)
            self._trainer = _nobody

    def run_evaluation(self, trainer: Any, run: Callable[[], Any]) -> Any:
        """Trainer.evaluation_loop is called, for evaluate() and predict()."""
        if not self._evaluation:
            self._steps.explain("evaluate() and predict() are recorded by MsprobeCallback(evaluation=True) only")
            return run()
        if self._steps.running:
            return run()  # inside a training step, and part of it
        model = trainer.model

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
            self._steps.end(error)


def _nobody() -> None:
    """Stands for the Trainer while none is training."""


def _watch_trainer() -> None:
    """A callback is told neither when a training ends by an exception nor when an evaluation begins: two methods of Trainer tell it.

    The methods stay the objects that they are, only their code is exchanged; without an MsprobeCallback they do what they did.
    """
    from msprobe.pytorch.dump.api_dump.exchanged import exchanged

    for name, handler in _HANDLERS.items():
        function = vars(_transformers.Trainer).get(name)
        if isinstance(function, FunctionType):
            entry = exchanged(function)
            entry.remove(handler)
            entry.renew()
            entry.add(handler)


def _handler(name: str, run_name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    def handler(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from msprobe.pytorch.dump.api_dump.exchanged import exchanged

        original = exchanged(vars(_transformers.Trainer)[name]).original

        def run() -> Any:
            return original(*args, **kwargs)

        trainer = args[0] if args else kwargs.get("self")
        callbacks = getattr(getattr(trainer, "callback_handler", None), "callbacks", ())
        for callback in callbacks:
            if isinstance(callback, MsprobeCallback):
                run = _inside(getattr(callback, run_name), trainer, run)
        return run()

    return handler


def _inside(outer: Callable[[Any, Callable[[], Any]], Any], trainer: Any, run: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: outer(trainer, run)


_HANDLERS = {"train": _handler("train", "run_train"), "evaluation_loop": _handler("evaluation_loop", "run_evaluation")}
