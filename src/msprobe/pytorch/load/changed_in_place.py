"""Which calls change their inputs in place: where inputs were replaced, only the copy changes, and nobody else sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch.dump.module_dump.fast_path import FAST_PATH_CLASSES
from msprobe.pytorch.dump.module_dump.naming import all_modules, named_modules

_DEEPEST = 8


class ChangedInPlace:
    """Hooks on every module between `put` and `remove`.

    Args:
        tell: is given a line for every input that a call has changed.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._handles: list[Any] = []
        self._running: dict[int, list[tuple[str, list[tuple[str, torch.Tensor, int]]]]] = {}

    def put(self, model: object, state: Any) -> None:
        """Watch; `state` is the recorder's, and knows the name of the call that has just begun."""
        self.remove()
        fast = {id(inner) for module in all_modules(model) if isinstance(module, FAST_PATH_CLASSES) for inner in module.modules()}

        def before(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            name = state.open[-1].name if state.open and state.open[-1].key is module else ""
            versions = [(key, tensor, version) for key, tensor in _tensors((args, kwargs)) if (version := _version(tensor)) is not None]
            self._running.setdefault(id(module), []).append((name, versions))

        def after(module: torch.nn.Module, args: Any, output: Any) -> None:
            running = self._running.get(id(module))
            if not running:
                return
            name, versions = running.pop()
            for key, tensor, version in versions:
                if name and _version(tensor) != version:
                    self._tell({"call": name, "key": key, "changed_in_place": True})

        for _, module in named_modules(model):
            if id(module) not in fast and not isinstance(module, torch.jit.ScriptModule):
                self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                self._handles.append(module.register_forward_hook(after, always_call=True))

    def remove(self) -> None:
        """Watch no more."""
        while self._handles:
            self._handles.pop().remove()
        self._running.clear()


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version
    except Exception as error:  # an inference tensor has none
        let_through(error)
        return None


def _tensors(call: tuple[Any, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    yield from _inside(call[0], "input", 0)
    yield from _inside(call[1], "input", 0)


def _inside(value: Any, key: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield key, value
    elif depth < _DEEPEST and type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from _inside(item, f"{key}.{index}", depth + 1)
    elif depth < _DEEPEST and type(value) is dict:
        for name, item in value.items():
            yield from _inside(item, f"{key}.{name}", depth + 1)
