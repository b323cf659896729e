"""Replacing inputs of modules by recorded ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from msprobe.config.result import LoadConfig
from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.format.tensor_file import TensorData
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump.naming import named_modules, shape_of
from msprobe.pytorch.load.call_inputs import CallInputs, Observe
from msprobe.pytorch.load.hooking import Exchanged, InputHooks
from msprobe.pytorch.load.recomputation import Recomputation
from msprobe.pytorch.load.source import NoSource, Source, StepSource
from msprobe.pytorch.load.targets import Targets, missed, module_of
from msprobe.recording.counters import Counters

__all__ = ["Observe", "Override", "TensorData"]

Entries: TypeAlias = Callable[[], Sequence[str]]
_MOST_RANGES = _MOST_SHOWN = 8


class Override:
    """The replacement of module inputs in this process, as one configuration asks for it.

    Args:
        load: the `load` section.
        observe: is shown every tensor before it is replaced. What it raises is contained and told.
        entries: gives the module calls whose inputs are replaced, in the place of `load.modules`; asked when a step begins.
        directory: what a relative `load.path` is relative to; "" for the current one.
        finite: what is cast to a narrower dtype stays finite where it was.
        by_path: a module gets its inputs also where the source has another class at its path.

    Raises:
        ConfigError: nothing can be loaded from `load.path`.
    """

    def __init__(
        self,
        load: LoadConfig,
        *,
        observe: Observe | None = None,
        entries: Entries | None = None,
        directory: str = "",
        finite: bool = False,
        by_path: bool = False,
    ) -> None:
        self.load = load
        self.on = False
        """Between start and stop."""
        self.in_step = False
        """Since the first start of the step that is running."""
        self._asked = self._began = False
        """Whether there ever was a step to decide on; whether there ever was a start."""
        self.refused = ""
        """Why the latest start() raised, "" where none did."""
        self._source = Source(load, directory)
        self._entries, self._by_path = entries, by_path
        self._listed: tuple[str, ...] = load.modules
        """The entries, as the source calls them."""
        self._recorded: dict[str, str] = {}
        """The same, as the model calls them -> as the source does; without those that no module of the model fits."""
        self._invalid: frozenset[str] = frozenset()
        self._told: set[str] = set()
        self._without: list[list[int]] = []
        """First and last of the steps for which there was no source."""
        self._inputs = CallInputs(load.cast, self._warn, observe, finite)
        self._hooks = InputHooks(self._called)
        self._step = 0
        self._here: StepSource | None = None
        self._shape: list[Any] = []
        self._names: dict[str, torch.nn.Module] = {}
        self._counters = Counters()
        self._repeats = Recomputation()
        self._matched: set[str] = set()
        self._second: dict[str, int] = {}
        """Entries that turned out to repeat another call, with the number of that."""
        self._calls = self._repeated = 0

    def wants(self, step: int, rank: int | None) -> bool:
        """Whether inputs are replaced in this step and on this rank."""
        load, self._asked, self.refused = self.load, True, ""
        if load.rank and rank is None:
            self._warn('"load"."rank" is set, but this process has no rank (no process group): nothing is replaced; leave it empty')
        return (not load.step or step in load.step) and (not load.rank or rank in load.rank)

    def start(self, model: Any, step: int, rank: int | None) -> None:
        """Inputs are replaced from here.

        Args:
            model: a module, or a list or tuple of them.
            step: number of the running step.
            rank: of this process, None where it has none.

        Raises:
            UsageError: at the first start of the process, if it cannot be told which directory of the dump is meant.
        """
        if self.on:
            return
        if not self.in_step:
            self._begin_step(step, rank)
        self._look_at(model)
        self._hooks.remove()  # what a stop() before the backward pass has left
        wanted = {module_of(entry) for entry in self._recorded}
        self._hooks.put(model, {name: module for name, module in self._names.items() if name in wanted})
        self.on = True

    def _begin_step(self, step: int, rank: int | None) -> None:
        first, self._began = not self._began, True
        self._here = None
        try:
            self._here = self._source.of(step, rank)
        except NoSource as problem:
            if first and problem.unclear:
                self._began, self.refused = False, str(problem)
                raise UsageError(f"[load] {problem}") from None
            if self._without and step == self._without[-1][1] + 1:
                self._without[-1][1] = step
            else:
                self._without.append([step, step])
            self._warn(f"step {step}: {problem}; nothing is replaced in this step", about=problem.about)
        self.in_step, self._step = True, step
        if self._entries is not None:
            listed = tuple(self._entries())
            if listed != self._listed:
                self._listed, self._shape = listed, []

    def _look_at(self, model: Any) -> None:
        """Take the names of the model's modules, and tell which entries mean none of them; once for each model."""
        shape = shape_of(model)
        if shape == self._shape:
            return
        everything = dict(named_modules(model))
        self._names = {name: module for name, module in everything.items() if not isinstance(module, torch.jit.ScriptModule)}
        self._shape = shape
        targets = Targets(everything, model, self._here.has if self._here is not None else lambda entry: False)
        invalid = {entry: why for entry in self._listed if (why := targets.why_not_there(entry)) is not None}
        self._recorded = {entry: entry for entry in self._listed if entry not in invalid}
        if self._by_path:
            self._take_by_path(invalid, targets)
        self._invalid = frozenset(invalid)
        logger.info(f"[load] module validation: {len(self._listed) - len(invalid)}/{len(self._listed)} modules valid in model")
        for entry, why in invalid.items():
            logger.warning(f"[load] invalid module: {entry}: {why}")

    def _take_by_path(self, invalid: dict[str, str], targets: Targets) -> None:
        """Move entries whose class alone is not the model's from the invalid ones to the others."""
        found: dict[str, None] = {}
        for entry in list(invalid):
            here = targets.by_path(entry)
            if here is not None and here not in self._recorded:
                self._recorded[here] = entry
                del invalid[entry]
                found[f"{module_of(here)} ({module_of(entry).rpartition('.')[2]})"] = None
        if found:
            self._warn(f"modules whose class is another one in the source (in parentheses) get their inputs by path: {_shown(list(found))}")

    def stop(self) -> None:
        """No more inputs are replaced, and entries that never came are told.

        Nothing of ours stays on the model, unless code under `torch.utils.checkpoint` whose inputs were replaced is still to be repeated by
        the backward pass: its modules keep their hook until the step ends, and replace in that repetition alone.
        """
        if not self.on:
            return
        self.on = False
        self._hooks.remove(but=frozenset(self._still_to_repeat()))
        here = {recorded: entry for entry, recorded in self._recorded.items()}
        never = [entry for recorded in self._listed if (entry := here.get(recorded, recorded)) not in self._matched]
        if never:
            told = ", ".join(missed(never, self._counters, self._hooks.compiled_later(), self._invalid))
            if told not in self._told:
                self._told.add(told)
                logger.warning(f"[load] {len(never)} module(s) were configured but never matched during step {self._step}: {told}")

    def _still_to_repeat(self) -> set[str]:
        waiting = self._repeats.waiting()
        return {module for module, numbers in waiting.items() if any(f"{module}.forward.{n}" in self._matched for n in numbers)}

    def end_step(self, by_user: bool = True) -> None:
        """The step ends: calls are counted from 0 again, and what was replaced is told in a line.

        Args:
            by_user: who called step(); else the process ends.
        """
        self.stop()
        if not self.in_step:
            return
        self.in_step = False
        failing = sys.exc_info()[0] is not None  # of a step that is broken off, in `finally` or `except`, no backward pass comes
        for module in self._still_to_repeat() if by_user and not failing else ():
            self._warn(
                f"step() came before the backward pass of {module}, whose inputs were replaced under torch.utils.checkpoint: its "
                "repetition sees the inputs as they arrive, so gradients are wrong; call step() after backward()"
            )
        self._hooks.remove()
        replaced = self._inputs.replaced
        if replaced:
            again = f", and again in {_count(self._repeated, 'call')} repeated for the backward pass" if self._repeated else ""
            logger.info(f"[load] step {self._step}: replaced {_count(replaced, 'input')} of {_count(self._calls, 'call')}{again}")
        self._tell_second()
        self._counters = Counters()
        self._repeats.clear()
        self._matched.clear()
        self._second.clear()
        self._inputs.replaced = self._calls = self._repeated = 0

    def _tell_second(self) -> None:
        if not self._second or self._entries is not None:  # who gives the entries knows
            return
        listed = [f"{entry} is the recomputation of forward.{origin}" for entry, origin in self._second.items()]
        self._warn(
            f"of the named calls {_count(len(listed), 'is no call of its own', 'are no calls of their own')}, by activation checkpointing: "
            f"{_shown(listed)}. A recomputation gets by itself what its first call got, and other values there make gradients wrong; "
            "it is counted, so what comes after it, such as a second micro-batch, has a later number"
        )

    def at_exit(self) -> None:
        """The process ends: so does the step, and a run in which nothing could be replaced says so."""
        self.end_step(by_user=False)
        if self.refused and not self._began:
            logger.warning(f"[load] nothing was replaced: {self.refused.removeprefix('[load] ')}")
        elif not self._asked:
            logger.warning("[load] nothing was replaced: start() was never called")
        elif (without := sum(last - first + 1 for first, last in self._without)) > 1:
            logger.warning(f"[load] nothing was replaced in {without} steps, for which there was no source: {_ranges(self._without)}")
        elif not self._began:
            logger.info('[load] nothing was replaced: "load" selects other steps or ranks')

    def forget(self) -> None:
        """Take everything off, and say nothing."""
        self.on = self.in_step = False
        self._hooks.remove()

    def _warn(self, text: str, about: str = "") -> None:
        """Once for each text, or for what it is about, where a text names a step or a file: a training has many steps."""
        if (about or text) not in self._told:
            self._told.add(about or text)
            logger.warning(f"[load] {text}")

    def _called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exchanged | None:
        """A hooked module's forward begins; gives its other inputs, or None to leave them."""
        if torch_internals.is_compiling():
            return None
        try:
            with torch_internals.NoTorchFunction(), torch_internals.no_dispatch_modes():
                return self._exchanged(name, args, kwargs)
        except Exception as error:
            let_through(error)
            try:
                self._warn(f"the inputs of {name} could not be replaced: {error!r}")
            except Exception as second:  # its __repr__ may do anything
                let_through(second)
            return None

    def _exchanged(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exchanged | None:
        number = self._counters.take(name) if self.on else self._counters.peek(name)
        origin = self._repeats.origin(name, number)
        entry = f"{name}.forward.{number}"
        repeats = not self.on or entry not in self._recorded
        if repeats:
            if origin is None:
                self._tell_unknown_repetition(name)
                return None
            entry = f"{name}.forward.{origin}"
            if entry not in self._recorded:
                return None
        else:
            self._matched.add(entry)
            if origin is not None:
                self._second[entry] = origin
        if self._here is None:
            return None
        if torch.jit.is_tracing():
            self._warn(f"{entry} was called by torch.jit.trace, where inputs are not replaced")
            return None
        before = self._inputs.replaced
        exchanged = self._inputs.exchange(self._here, entry, args, kwargs, silent=repeats, recorded=self._recorded[entry])
        if exchanged is not None and repeats:
            self._repeated += 1
            self._inputs.replaced = before
        elif exchanged is not None:
            self._calls += 1
        return exchanged

    def _tell_unknown_repetition(self, name: str) -> None:
        """A call during a backward pass may repeat one, in a way that we do not know."""
        if torch_internals.graph_task() != -1 and any(module_of(entry) == name for entry in self._matched):
            self._warn(
                f"{name} was called once more during the backward pass, by code that is not torch.utils.checkpoint: its inputs are not "
                "replaced there; if that call repeats an earlier one, gradients are wrong"
            )


def _ranges(found: list[list[int]]) -> str:
    """`1-3, 7`, of pairs of first and last."""
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in found[:_MOST_RANGES]]
    return ", ".join(shown) + (" and more" if len(found) > _MOST_RANGES else "")


def _shown(words: list[str]) -> str:
    return ", ".join(words[:_MOST_SHOWN]) + (f" and {len(words) - _MOST_SHOWN} more" if len(words) > _MOST_SHOWN else "")


def _count(number: int, what: str, several: str = "") -> str:
    return f"{number} {what}" if number == 1 else f"{number} {several or what + 's'}"
