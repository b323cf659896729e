"""PrecisionDebugger: start, stop, step and save, and nothing clever."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any

from msprobe.format import isolation, trial
from msprobe.log import logger
from msprobe.pytorch import custom_api
from msprobe.pytorch.compile_internals import while_tracing
from msprobe.pytorch.live_config import LiveConfig
from msprobe.pytorch.recording_context import Recording
from msprobe.pytorch.session import Model, Session, contained
from msprobe.pytorch.torch_internals import is_compiling as _is_compiling
from msprobe.recording.debugger import BaseDebugger


@while_tracing
def _tell_traced() -> None:
    """start() stands in code that torch.compile traces now: there it is left out, and the code stays compiled."""
    if not _traced:
        _traced.append(True)
        logger.warning(
            "start() is called inside code that is being compiled or exported, where it does nothing: call it outside of that code (which "
            'then runs eagerly until stop()), or do not compile while recording (torch.compiler.set_stance("force_eager"))'
        )


@while_tracing
def _tell_save_traced() -> None:
    """save() stands in code that torch.compile traces now: there it is left out."""
    session = PrecisionDebugger._session
    if session is not None:
        session.saving.tell_traced()


_traced: list[bool] = []
"""Whether that has been told."""


def _session(config_path: str | None, arguments: dict[str, Any], told: bool = False) -> Session:
    """The session that the configuration asks for, or, in a process that `msprobe isolate` has started, that command.

    `told`: what is to be said of the configuration was said in another process.
    """
    orders = os.environ.get(isolation.VARIABLE)
    if not orders:
        if os.environ.get(trial.VARIABLE):
            atexit.register(logger.info, trial.ENDED)
        return Session(LiveConfig(config_path, trial.limited(arguments), told))
    from msprobe.pytorch.load.isolating import IsolatedSession

    return IsolatedSession(orders)


class PrecisionDebugger(BaseDebugger[Session]):
    """Records what every module and every API call of a training or inference step takes in and gives out.

    There is one debugger in a process: constructing a second one gives the first, its arguments are ignored. Every method may also be
    called on the class.

    Args:
        config_path: a config.json; without it the packaged defaults hold.
        task, dump_path, level, step: take precedence over the file's fields of the same names.

    Raises:
        ConfigError: a field has a value that is not allowed.
    """

    _session: Session | None = None
    _stand_in: Callable[[], None] | None = None
    """Ends what `msprobe run` records: a debugger of the script's own goes before it."""

    @classmethod
    def _make_session(cls, config_path: str | None, arguments: dict[str, Any]) -> Session:
        stand_in, PrecisionDebugger._stand_in = PrecisionDebugger._stand_in, None
        if stand_in is not None:
            stand_in()
        return _session(config_path, arguments)

    @classmethod
    def _in_step(cls) -> bool:
        """Whether the running step is recorded, so that `_note` has a place."""
        return cls._current().step is not None

    @classmethod
    def _note(cls, key: str, value: Any) -> None:
        """Put a JSON value into meta.json of the running step; nothing happens where none is being recorded."""
        session = cls._current()
        with session.lock:
            if session.step is not None:
                session.step.writer.meta[key] = value

    @classmethod
    def start(cls, model: Model | None = None, token_range: Any = None, rank_id: int | None = None) -> None:
        """Begin recording; nothing happens if it is on already or if this step or rank is not selected.

        Args:
            model: a module, or a list or tuple of them; needed at levels L0 and mix. What is inside it is recorded, it itself is not.
            token_range: `[first, last]`, for inference loops: recording is on only while these calls of the model run, counted from 0 at
                this start(), both included. Of several models the calls of the first are counted.
            rank_id: names the directory `rank{rank_id}`; by default the rank of torch.distributed.

        Raises:
            UsageError: `model` is missing or of a wrong type, or another argument is.
        """
        if _is_compiling():
            _tell_traced()
            return
        session = cls._current()
        with session.lock:
            contained(lambda: session.start(model, token_range, rank_id), session)

    @classmethod
    def stop(cls) -> None:
        """End recording. Gradients of what was recorded are still recorded until `step`."""
        if _is_compiling():
            return
        session = cls._current()
        with session.lock:
            contained(session.stop, session)

    @classmethod
    def step(cls) -> None:
        """End the step: everything is on disk, and the next start() begins a new one."""
        if _is_compiling():
            return
        session = cls._current()
        with session.lock:
            contained(session.end_step, session)

    @classmethod
    def record(cls, model: Any = None, token_range: Any = None, rank_id: int | None = None) -> Recording:
        """One step: `with debugger.record(model):` is start(), and at the end stop() and step(), also where an exception passes through.

        `@debugger.record(model)` above a function makes a step of each call of it; there the model may also be the name of an argument or
        of an attribute (`"model"`, `"self.model"`), or a function that is given the call's arguments. A record() inside of another one
        belongs to the outer step.

        Raises:
            UsageError: as start(); when it is entered.
        """
        return Recording(cls, model, token_range, rank_id)

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record one value, and its gradients when they come; needs level debug, and neither start() nor a model.

        debug.json holds it as `{name}.{n}.debug` and `{name}_grad.{n}.debug`, n counting the calls of one name in a step.

        Args:
            variable: a tensor, a number, text, or a list, tuple, dict or dataclass of such, as deep as it may be.
            name: what it is called. Anything that is no text is told once, and nothing is recorded.
            save_backward: whether the gradients are recorded; anything but a bool is told once, and nothing is recorded.
        """
        if _is_compiling():
            _tell_save_traced()
            return
        session = PrecisionDebugger._session
        if session is not None and session.saving.off:
            return
        cls._current().saving.save(variable, name, save_backward)

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record the calls of `module.api` like those of torch's functions, as `{api_prefix}.{api}.{n}.forward`.

        Args:
            module: what the function is an attribute of: a module, a class, or an object.
            api: the attribute's name.
            api_prefix: by default the module's `__name__`.

        Raises:
            UsageError: there is no such attribute, it is no function, or the prefix is none.
        """
        session = cls._current()
        with session.lock:
            contained(lambda: custom_api.register(module, api, api_prefix), session)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undo `register_custom_api`; nothing happens where nothing was registered.

        Raises:
            UsageError: there is no such attribute.
        """
        session = cls._current()
        with session.lock:
            contained(lambda: custom_api.restore(module, api), session)
