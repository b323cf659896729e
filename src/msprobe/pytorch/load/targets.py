"""The module calls that the configuration names, held against the modules that the model has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import torch

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump.naming import checked_models
from msprobe.recording.counters import Counters

_MOST_COMPARED = 20_000


def module_of(entry: str) -> str:
    """`Module.{path}.{Class}` of `Module.{path}.{Class}.forward.{n}`."""
    return entry.rpartition(".forward.")[0]


def why_not_there(entry: str, names: dict[str, torch.nn.Module], model: object) -> str | None:
    """Why the model has no such module, with the name that was probably meant; None where it has.

    Args:
        entry: `Module.{path}.{Class}.forward.{n}`.
        names: the model's modules, by name.
        model: the model or models.
    """
    wanted = module_of(entry)
    module = names.get(wanted)
    if module is not None:
        return "it is a scripted module, which takes no hooks" if isinstance(module, torch.jit.ScriptModule) else None
    path, _, kind = wanted.removeprefix("Module.").rpartition(".")
    for name in names:
        there, _, other = name.removeprefix("Module.").rpartition(".")
        if there == path:
            return f'the class of "{path}" in the model is {other}, not {kind}; did you mean "{name}"?'
    if not path:
        return "it names the model itself, which is not recorded; name a module inside it"
    shared = _module_at(path, model)
    for name, other in names.items():
        if other is shared:
            return f'"{path}" is the same module as "{name}": its calls are recorded, and counted, under that name'
    close = get_close_matches(wanted, list(names)[:_MOST_COMPARED], n=1, cutoff=0.5)
    return f'the model has no module "{path}"' + (f'; did you mean "{close[0]}"?' if close else "")


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
