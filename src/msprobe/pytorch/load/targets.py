"""The module calls that the configuration names, held against the modules that the model has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import torch

from msprobe.recording.counters import Counters

_MOST_COMPARED = 20_000


def module_of(entry: str) -> str:
    """`Module.{path}.{Class}` of `Module.{path}.{Class}.forward.{n}`."""
    return entry.rpartition(".forward.")[0]


def why_not_there(entry: str, names: dict[str, torch.nn.Module]) -> str | None:
    """Why the model has no such module, with the name that was probably meant; None where it has.

    Args:
        entry: `Module.{path}.{Class}.forward.{n}`.
        names: the model's modules, by name.
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
    close = get_close_matches(wanted, list(names)[:_MOST_COMPARED], n=1, cutoff=0.5)
    return f'the model has no module "{path}"' + (f'; did you mean "{close[0]}"?' if close else "")


def missed(entries: Iterable[str], names: dict[str, torch.nn.Module], counters: Counters) -> list[str]:
    """The entries with the reason why they never came.

    Args:
        entries: `Module.{path}.{Class}.forward.{n}`.
        names: the model's modules, by name.
        counters: how often each module was called in this step.
    """
    return [f"{entry} ({_why_missed(entry, names, counters)})" for entry in entries]


def _why_missed(entry: str, names: dict[str, torch.nn.Module], counters: Counters) -> str:
    module = module_of(entry)
    if module not in names:
        return "not in the model"
    called = counters.peek(module)
    if not called:
        return "never called"
    if called == 1:
        return "called once, so its only call is forward.0"
    numbers: Sequence[int] = range(called) if called <= 3 else (0, called - 1)
    listed = [f"forward.{n}" for n in numbers]
    return f"called {called} times, so its calls are " + (f"{listed[0]} to {listed[1]}" if called > 3 else _joined(listed))


def _joined(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
