"""What save, save_grad and step do where Python runs them: PyNative mode, and around compiled graphs."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from mindspore import Tensor

from msprobe.contain import let_through
from msprobe.mindspore.process import wait_for_device
from msprobe.mindspore.static_save.files import FILES
from msprobe.mindspore.static_save.taps import has_python_ops, skipped

_MAX_DEPTH = 200
_hooks: list[tuple[_Hook, Any]] = []
_lock = threading.Lock()


def save_now(save_dir: Any, name: Any, data: Any) -> None:
    """Write the tensors in `data` as they are now."""
    directory = _directory("save", save_dir, name)
    if directory is None:
        return
    try:
        _save(directory, name, data, 0)
    except Exception as error:
        let_through(error)
        FILES.tell(f'save(name="{name}") could not look at a value: {error!r}')


def _save(directory: str, name: str, data: Any, depth: int) -> None:
    if isinstance(data, Tensor):
        FILES.keep(directory, name, str(data.dtype).lower(), data.asnumpy())
    elif isinstance(data, (list, tuple)) and depth < _MAX_DEPTH:
        for i, value in enumerate(data):
            _save(directory, f"{name}.{i}", value, depth + 1)
    elif isinstance(data, dict) and depth < _MAX_DEPTH:
        for key, value in data.items():
            _save(directory, f"{name}.{key}", value, depth + 1)
    else:
        skipped(name)


class _Hook:
    """Writes one gradient. It is taken off afterwards (MindSpore does not survive that inside of the hook): a tensor that is used again in
    the next step would call it again."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._name = name
        self.fired = False

    def function(self) -> Any:
        """What register_hook takes: a plain function."""

        def hook(gradient: Any) -> None:
            if self.fired:
                return
            self.fired = True
            try:
                FILES.keep(self._directory, self._name, str(gradient.dtype).lower(), gradient.asnumpy())
            except Exception as error:
                let_through(error)
                FILES.tell(f'save_grad(name="{self._name}") could not look at a gradient: {error!r}')

        return hook


def _take_off(all_of_them: bool) -> None:
    """Take hooks off that have done their work, or all."""
    with _lock:
        done = [item for item in _hooks if all_of_them or item[0].fired]
        _hooks[:] = [item for item in _hooks if item not in done]
    for _, handle in done:
        try:
            handle.remove()
        except Exception as error:
            let_through(error)


def save_grad_now(save_dir: Any, name: Any, data: Any) -> Any:
    """Write the gradient of `data` when it comes; gives `data` itself."""
    directory = _directory("save_grad", save_dir, name)
    if directory is None:
        return data
    if not isinstance(data, Tensor):
        FILES.tell(f'save_grad(name="{name}"): a {type(data).__name__} has no gradient, only a tensor has; nothing is saved')
        return data
    try:
        _take_off(all_of_them=False)
        hook = _Hook(directory, f"{name}_grad")
        handle = data.register_hook(hook.function())
        with _lock:
            _hooks.append((hook, handle))
    except Exception as error:
        let_through(error)
        FILES.tell(f'save_grad(name="{name}") cannot follow the gradient: {error!r}')
    return data


def _directory(what: str, save_dir: Any, name: Any) -> str | None:
    """The directory, absolute; None where the arguments are wrong, which is told."""
    for argument, value in (("save_dir", save_dir), ("name", name)):
        if not isinstance(value, str) or not value:
            FILES.tell(f"{what}({argument}=<{type(value).__name__}>): it must be text, and not empty; nothing is saved")
            return None
    return os.path.abspath(os.path.expanduser(str(save_dir)))


def end_step() -> None:
    """See `step`."""
    failure = wait_for_device()
    _take_off(all_of_them=True)
    if not has_python_ops():
        _tell_device()
    FILES.end_step()
    if failure is not None:
        raise failure


def _tell_device() -> None:
    """TensorDump counts the steps itself: it is told by a tensor of a name that it knows."""
    try:
        import mindspore
        from mindspore import ops

        @mindspore.jit
        def update(value: Any) -> Any:
            ops.TensorDump()("<tensordump-update-step>", value)
            return value

        update(Tensor([0], mindspore.float32))
    except Exception as error:
        let_through(error)
        FILES.tell(f"step(): the device could not be told that a step has ended: {error!r}")


def _at_exit() -> None:
    """A graph may still run when the interpreter ends."""
    if wait_for_device() is None:
        FILES.drain()


atexit.register(_at_exit)
