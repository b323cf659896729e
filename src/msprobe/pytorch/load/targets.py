"""The module calls that the configuration names, held against the modules that the model has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import torch

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump.naming import checked_models
from msprobe.recording.counters import Counters

_MOST_COMPARED = 20_000
"""Names, for all wrong entries of a configuration together: about two seconds."""


def module_of(entry: str) -> str:
    """`Module.{path}.{Class}` of `Module.{path}.{Class}.forward.{n}`."""
    return entry.rpartition(".forward.")[0]


class Targets:
    """Says why a model has no such module.

    Args:
        names: the model's modules, by name.
        model: the model or models.
    """

    def __init__(self, names: dict[str, torch.nn.Module], model: object) -> None:
        self._names, self._model = names, model
        self._at = {name.removeprefix("Module.").rpartition(".")[0]: name for name in names}
        self._of = {id(module): name for name, module in names.items()}
        self._without_first = {_shortened(name): name for name in names}
        self._left = _MOST_COMPARED

    def why_not_there(self, entry: str) -> str | None:
        """Why the model has no such module, with the name that was probably meant; None where it has.

        Args:
            entry: `Module.{path}.{Class}.forward.{n}`.
        """
        wanted = module_of(entry)
        module = self._names.get(wanted)
        if module is not None:
            return "it is a scripted module, which takes no hooks" if isinstance(module, torch.jit.ScriptModule) else None
        path, _, kind = wanted.removeprefix("Module.").rpartition(".")
        if not path:
            return "it names the model itself, which is not recorded; name a module inside it"
        name = self._at.get(path)
        if name is not None:
            return f'the class of "{path}" in the model is {name.rpartition(".")[2]}, not {kind}; did you mean "{name}"?'
        shared = _module_at(path, self._model)
        name = self._of.get(id(shared)) if shared is not None else None
        if name is not None:
            return f'"{path}" is the same module as "{name}": its calls are recorded, and counted, under that name'
        close = self._close_to(wanted)
        return f'the model has no module "{path}"' + (f'; did you mean "{close}"?' if close else "")

    def _close_to(self, wanted: str) -> str | None:
        """A wrapper more or less around the model is what mostly went wrong, with all entries at once; else names that look alike."""
        shorter = _shortened(wanted)
        if shorter in self._names:
            return shorter
        if wanted in self._without_first:
            return self._without_first[wanted]
        if self._left <= 0:
            return None
        compared = list(self._names)[:_MOST_COMPARED]
        self._left -= len(compared)
        return next(iter(get_close_matches(wanted, compared, n=1, cutoff=0.5)), None)


def _shortened(name: str) -> str:
    """A module's name without the first part of its path."""
    return "Module." + name.removeprefix("Module.").partition(".")[2]


def _module_at(path: str, model: object) -> torch.nn.Module | None:
    """The module at a dotted path, under whatever name; `torch.compile`'s wrappers are looked through."""
    for prefix, root in checked_models(model):
        module: torch.nn.Module | None = torch_internals.unwrap_compiled(root)
        for part in path.removeprefix(prefix).split(".") if path.startswith(prefix) else ():
            module = module._modules.get(part) if module is not None else None
            module = torch_internals.unwrap_compiled(module) if module is not None else None
        if module is not None and path.startswith(prefix):
            return module
    return None


def missed(entries: Iterable[str], names: dict[str, torch.nn.Module], counters: Counters, compiled_later: bool = False) -> list[str]:
    """The entries with the reason why they never came.

    Args:
        entries: `Module.{path}.{Class}.forward.{n}`.
        names: the model's modules, by name.
        counters: how often each module was called in this step.
        compiled_later: whether code was compiled after `start()`.
    """
    return [f"{entry} ({_why_missed(entry, names, counters, compiled_later)})" for entry in entries]


def _why_missed(entry: str, names: dict[str, torch.nn.Module], counters: Counters, compiled_later: bool) -> str:
    module = module_of(entry)
    if module not in names:
        return "not in the model"
    called = counters.peek(module)
    if not called:
        later = ", or in code that was first compiled after start(), which is not seen: call torch.compile before start()"
        return "never called" + (later if compiled_later else "")
    if called == 1:
        return "called once, so its only call is forward.0"
    numbers: Sequence[int] = range(called) if called <= 3 else (0, called - 1)
    listed = [f"forward.{n}" for n in numbers]
    return f"called {called} times, so its calls are " + (f"{listed[0]} to {listed[1]}" if called > 3 else _joined(listed))


def _joined(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
