"""module_dump: between it and module_dump_end one module is recorded, under a name of the user's, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.modules import module as torch_module

from msprobe.errors import UsageError
from msprobe.log import logger
from msprobe.pytorch import compile_internals, torch_internals
from msprobe.pytorch.dump import common_case
from msprobe.pytorch.dump.module_dump.hooks import After, Before, ModuleHooks, hook_pair
from msprobe.pytorch.dump.recorder import Recorder
from msprobe.pytorch.dump.step_record import StepRecord

_KEY = "msprobe module_dump"


class SingleModule(ModuleHooks):
    """Watches one module by torch's global hooks: it carries none itself, so copies, pickles and inference fast paths are as ever."""

    def __init__(self, before: Before, after: After, skip: Callable[[str, str], None]) -> None:
        super().__init__(before, after, skip)
        self._hooked: torch.nn.Module | None = None

    def register_one(self, name: str, module: torch.nn.Module) -> None:
        """Watch this module, and none inside it."""
        inner = compile_internals.unwrap_compiled(module)
        if inner is not module:  # torch warns when compiled modules meet global hooks
            self._hooked = inner
            torch_internals.put_module_hooks(inner, _KEY, *hook_pair(name, inner, self._before, self._after))
            return
        self._by_id[id(module)] = (name, module)
        self._handles.append(torch_module.register_module_forward_pre_hook(self._global_before))
        self._handles.append(torch_module.register_module_forward_hook(self._global_after, always_call=True))

    def remove(self) -> None:
        """Take everything off."""
        super().remove()
        if self._hooked is not None:
            torch_internals.take_module_hooks(self._hooked, _KEY)
            self._hooked = None


class Region:
    """What lies between module_dump and module_dump_end.

    Args:
        recorder: records the module.
        module: the module.
        name: what stands in its entries' names instead of its path: `Module.{name}.{Class}.forward.{n}`.
    """

    def __init__(self, recorder: Recorder, module: torch.nn.Module, name: str) -> None:
        self._recorder, self._module = recorder, module
        self._prefix = f"Module.{name}.{type(compile_internals.unwrap_compiled(module)).__name__}"
        self._hooks = SingleModule(*common_case.module_hooks(recorder), recorder.skipped_module)

    def begin(self) -> None:
        """Record nothing but the module from now on."""
        self._recorder.only = self._prefix
        self._hooks.register_one(self._prefix, self._module)
        step = self._recorder.step
        if step is not None and self._prefix not in _hooked.setdefault(step, set()):
            _hooked[step].add(self._prefix)
            step.tally.modules_hooked += 1

    def end(self) -> None:
        """Record everything again; the window calls it too, when it closes."""
        self._hooks.remove()
        if self._recorder.only == self._prefix:
            self._recorder.only = None


_hooked: WeakKeyDictionary[StepRecord, set[str]] = WeakKeyDictionary()
"""Modules of a step that its closing line counts already."""
_region: Region | None = None


def begin(recorder: Recorder, undo: list[Callable[[], Any]], module: Any, name: Any) -> None:
    """Begin a region in the window that is open now; one that is open already ends.

    Args:
        recorder: the recorder of the window.
        undo: what the window undoes when it closes.
        module, name: the module, and what it is called.
    """
    global _region
    if _region is not None and recorder.only is not None:
        logger.warning("module_dump: there was no module_dump_end for the module before; it is no longer recorded")
    end()
    region = _region = Region(recorder, module, name)
    undo.append(region.end)  # first: an interruption of the user's may come between any two lines
    region.begin()


def end() -> None:
    """End the region, if one is open."""
    global _region
    region, _region = _region, None
    if region is not None:
        region.end()


def checked(module: Any, name: Any) -> None:
    """Whether the arguments of module_dump fit.

    Raises:
        UsageError: they do not.
    """
    call = "module_dump(module, module_name)"
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{call}: module is {type(module).__name__}; allowed: a torch.nn.Module")
    if not isinstance(name, str) or not name:
        raise UsageError(f'{call}: module_name is {name!r}; allowed: text, such as "MyModule"')
