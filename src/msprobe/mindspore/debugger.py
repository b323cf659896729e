"""PrecisionDebugger: start, stop, step and save, and nothing clever."""

from __future__ import annotations

from typing import Any

from msprobe.config import load_config
from msprobe.mindspore.session import Session, contained
from msprobe.recording.debugger import BaseDebugger


class PrecisionDebugger(BaseDebugger[Session]):
    """Records what every cell and every API call of a training or inference step takes in and gives out.

    There is one debugger in a process: constructing a second one gives the first, its arguments are ignored. Every method may also be
    called on the class.

    Args:
        config_path: a config.json; without it the packaged defaults hold.
        task, dump_path, level, step: take precedence over the file's fields of the same names.

    Raises:
        ConfigError: a field has a value that is not allowed.
    """

    _session: Session | None = None

    @classmethod
    def _make_session(cls, config_path: str | None, arguments: dict[str, Any]) -> Session:
        return Session(load_config(config_path, framework="mindspore", **arguments))

    @classmethod
    def start(cls, model: Any = None, rank_id: int | None = None) -> None:
        """Begin recording; nothing happens if it is on already or if this step or rank is not selected.

        Args:
            model: a cell, or a list or tuple of them; needed at levels L0 and mix, and at L1 for primitives that cells hold. What is inside
                it is recorded, it itself is not.
            rank_id: names the directory `rank{rank_id}`; by default the rank of MindSpore's communication, where that was initialised.

        Raises:
            UsageError: `model` is missing or of a wrong type, or `rank_id` is no integer of 0 or more.
        """
        session = cls._current()
        with session.lock:
            contained(lambda: session.start(model, rank_id), session)

    @classmethod
    def stop(cls) -> None:
        """End recording. Gradients of what was recorded are still recorded until `step`."""
        session = cls._current()
        with session.lock:
            contained(session.stop, session)

    @classmethod
    def step(cls) -> None:
        """End the step: what still runs is waited for, everything is on disk, and the next start() begins a new one."""
        session = cls._current()
        with session.lock:
            contained(session.end_step, session)

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record one value, and its gradients when they come; needs level debug and PyNative mode, and neither start() nor a model.

        debug.json holds it as `{name}.{n}.debug` and `{name}_grad.{n}.debug`, n counting the calls of one name in a step. Inside of what
        is compiled (graph mode, jit) use `msprobe.mindspore.save` and `save_grad`.

        Args:
            variable: a tensor, a number, text, or a list, tuple, dict or dataclass of such.
            name: what it is called. Anything that is no text is told, and nothing is recorded.
            save_backward: whether the gradients are recorded; anything but a bool is told, and nothing is recorded.
        """
        session = cls._current()
        with session.lock:
            contained(lambda: session.saving.save(variable, name, save_backward), session)
