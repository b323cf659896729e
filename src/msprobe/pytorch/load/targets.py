"""The module calls that the configuration names, held against the modules that the model has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches

import torch

from msprobe.pytorch import compile_internals
from msprobe.pytorch.dump.module_dump.naming import checked_models
from msprobe.recording.counters import Counters

_INVALID = "invalid, as start() has told"
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
        recorded: whether the source has a call of that name.
    """

    def __init__(self, names: dict[str, torch.nn.Module], model: object, recorded: Callable[[str], bool]) -> None:
        self._names, self._model, self._recorded = names, model, recorded
        self._at = {_path_and_class(name)[0]: name for name in names}
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
        path, kind = _path_and_class(wanted)
        if not path:
            return "it names the model itself, which is not recorded; name a module inside it"
        name = self._at.get(path)
        if name is not None:
            return f'the class of "{path}" in the model is {_path_and_class(name)[1]}, not {kind}{self._hint(entry, name)}'
        shared = _module_at(path, self._model)
        name = self._of.get(id(shared)) if shared is not None else None
        if name is not None:
            return f'"{path}" is the same module as "{name}": its calls are recorded, and counted, under that name'
        close = self._close_to(wanted)
        return f'the model has no module "{path}"' + (self._hint(entry, close) if close else "")

    def by_path(self, entry: str) -> str | None:
        """The entry as the model would call it, where a module that takes hooks stands at its path; None where there is none."""
        name = self._at.get(_path_and_class(module_of(entry))[0])
        return None if name is None or isinstance(self._names[name], torch.jit.ScriptModule) else _renamed(entry, name)

    def _hint(self, entry: str, name: str) -> str:
        """What to write in the place of an entry; or that this would not help, as the source has that name and not the model's."""
        meant = _renamed(entry, name)
        if not self._recorded(entry) or self._recorded(meant):
            return f'; did you mean "{meant}"?'
        if _path_and_class(name)[0] == _path_and_class(module_of(entry))[0]:
            return (
                f'; the source has the call as configured and none "{meant}", and load needs the same class in both: use it in the model, '
                "or msprobe isolate, which goes by the path alone"
            )
        return (
            f'; the nearest would be "{meant}", but the source has none, only the call as configured, and load needs the same path in '
            "both: give start() the same part of the model as in the run that recorded the source"
        )

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


def _path_and_class(name: str) -> tuple[str, str]:
    path, _, kind = name.removeprefix("Module.").rpartition(".")
    return path, kind


def _renamed(entry: str, module: str) -> str:
    """An entry with the number that it has, of another module."""
    return f"{module}.forward.{entry.rpartition('.')[2]}"


def _shortened(name: str) -> str:
    """A module's name without the first part of its path."""
    return "Module." + name.removeprefix("Module.").partition(".")[2]


def _module_at(path: str, model: object) -> torch.nn.Module | None:
    """The module at a dotted path, under whatever name; `torch.compile`'s wrappers are looked through."""
    for prefix, root in checked_models(model):
        module: torch.nn.Module | None = compile_internals.unwrap_compiled(root)
        for part in path.removeprefix(prefix).split(".") if path.startswith(prefix) else ():
            module = module._modules.get(part) if module is not None else None
            module = compile_internals.unwrap_compiled(module) if module is not None else None
        if module is not None and path.startswith(prefix):
            return module
    return None


def missed(entries: Iterable[str], counters: Counters, compiled_later: bool, invalid: Collection[str]) -> list[str]:
    """The entries with the reason why they never came.

    Args:
        entries: `Module.{path}.{Class}.forward.{n}`.
        counters: how often each module was called in this step.
        compiled_later: whether code was compiled after `start()`.
        invalid: entries that have been told as invalid.
    """
    return [f"{entry} ({_INVALID if entry in invalid else _why_missed(entry, counters, compiled_later)})" for entry in entries]


def _why_missed(entry: str, counters: Counters, compiled_later: bool) -> str:
    module = module_of(entry)
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
