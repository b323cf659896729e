"""What save, save_grad and step do where Python runs them: PyNative mode, and around compiled graphs."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import atexit
from typing import Any

from mindspore import Tensor, ops

from msprobe.contain import let_through
from msprobe.mindspore.device import has_dump_ops
from msprobe.mindspore.process import wait_for_device
from msprobe.mindspore.static_save.dumped import DUMPED
from msprobe.mindspore.static_save.files import FILES, absolute
from msprobe.mindspore.static_save.taps import fits, skipped, without_gradient

_MAX_DEPTH = 200


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


def _hook(directory: str, name: str) -> Any:
    """What writes one gradient, and no second one from another pass over the same graph."""
    fired = [False]

    def hook(gradients: Any) -> None:
        if fired[0]:
            return
        fired[0] = True
        try:
            gradient = gradients[0] if isinstance(gradients, tuple) else gradients
            FILES.keep(directory, name, str(gradient.dtype).lower(), gradient.asnumpy())
        except Exception as error:
            let_through(error)
            FILES.tell(f'save_grad(name="{name}") could not look at a gradient: {error!r}')

    return hook


def save_grad_now(save_dir: Any, name: Any, data: Any) -> Any:
    """Write the gradient of what this returns when it comes: `data` by another name, with the same memory.

    As in a graph, other uses of `data` have no part in it: a hook on `data` itself would see the sum over all of its uses.
    """
    directory = _directory("save_grad", save_dir, name)
    if directory is None:
        return data
    if not isinstance(data, Tensor):
        without_gradient(name)
        return data
    try:
        return ops.HookBackward(_hook(directory, f"{name}_grad"))(data)
    except Exception as error:
        let_through(error)
        FILES.tell(f'save_grad(name="{name}") cannot follow the gradient: {error!r}')
    return data


def _directory(what: str, save_dir: Any, name: Any) -> str | None:
    """The directory, absolute; None where the arguments are wrong, which is told."""
    return absolute(str(save_dir)) if fits(what, save_dir, name) else None


def end_step() -> None:
    """See `step`."""
    failure = wait_for_device()
    DUMPED.settle(FILES)
    if has_dump_ops():
        _tell_device()
    FILES.end_step()
    if failure is not None:
        raise failure


def _tell_device() -> None:
    """TensorDump counts the steps itself: it is told by a tensor of a name that it knows."""
    try:
        import mindspore

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
        DUMPED.settle(FILES, last=True)
        FILES.drain()


atexit.register(_at_exit)
