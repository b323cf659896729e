"""Replacing inputs of modules by recorded ones."""

from __future__ import annotations

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
_MOST_RANGES = 8


class Override:
    """The replacement of module inputs in this process, as one configuration asks for it.

    Args:
        load: the `load` section.
        observe: is shown every tensor before it is replaced. What it raises is contained and told.
        entries: gives the module calls whose inputs are replaced, in the place of `load.modules`; asked when a step begins.
        directory: what a relative `load.path` is relative to; "" for the current one.
        finite: what is cast to a narrower dtype stays finite where it was.

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
    ) -> None:
        self.load = load
        self.on = False
        """Between start and stop."""
        self.in_step = False
        """Since the first start of the step that is running."""
        self._asked = self._began = False
        """Whether there ever was a step to decide on; whether there ever was a start."""
        self._source = Source(load, directory)
        self._entries = entries
        self._wanted: frozenset[str] = frozenset(load.modules)
        self._listed: tuple[str, ...] = load.modules
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
        self._calls = self._repeated = 0

    def wants(self, step: int, rank: int | None) -> bool:
        """Whether inputs are replaced in this step and on this rank."""
        load, self._asked = self.load, True
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
        wanted = {module_of(entry) for entry in self._wanted}
        self._hooks.put(model, {name: module for name, module in self._names.items() if name in wanted})
        self.on = True

    def _begin_step(self, step: int, rank: int | None) -> None:
        first, self._began = not self._began, True
        self._here = None
        try:
            self._here = self._source.of(step, rank)
        except NoSource as problem:
            if first and problem.unclear:
                self._began = False
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
                self._listed, self._wanted, self._shape = listed, frozenset(listed), []

    def _look_at(self, model: Any) -> None:
        """Take the names of the model's modules, and tell which entries mean none of them; once for each model."""
        shape = shape_of(model)
        if shape == self._shape:
            return
        everything = dict(named_modules(model))
        self._names = {name: module for name, module in everything.items() if not isinstance(module, torch.jit.ScriptModule)}
        self._shape = shape
        targets = Targets(everything, model)
        invalid = {entry: why for entry in self._listed if (why := targets.why_not_there(entry)) is not None}
        logger.info(f"[load] module validation: {len(self._listed) - len(invalid)}/{len(self._listed)} modules valid in model")
        for entry, why in invalid.items():
            logger.warning(f"[load] invalid module: {entry}: {why}")

    def stop(self) -> None:
        """No more inputs are replaced, and entries that never came are told.

        Nothing of ours stays on the model, unless code under `torch.utils.checkpoint` whose inputs were replaced is still to be repeated by
        the backward pass: its modules keep their hook until the step ends, and replace in that repetition alone.
        """
        if not self.on:
            return
        self.on = False
        self._hooks.remove(but=frozenset(self._still_to_repeat()))
        never = [entry for entry in self._listed if entry not in self._matched]
        if never:
            told = ", ".join(missed(never, self._names, self._counters, self._hooks.compiled_later()))
            if told not in self._told:
                self._told.add(told)
                logger.warning(f"[load] {len(never)} module(s) were configured but never matched during step {self._step}: {told}")

    def _still_to_repeat(self) -> set[str]:
        waiting = self._repeats.waiting()
        return {module for module, numbers in waiting.items() if any(f"{module}.forward.{n}" in self._matched for n in numbers)}

    def end_step(self) -> None:
        """The step ends: calls are counted from 0 again, and what was replaced is told in a line."""
        self.stop()
        if not self.in_step:
            return
        self.in_step = False
        for module in self._still_to_repeat():
            self._warn(
                f"step() came before the backward pass of {module}, whose inputs were replaced under torch.utils.checkpoint: its "
                "repetition sees the inputs as they arrive, so gradients are wrong; call step() after backward()"
            )
        self._hooks.remove()
        replaced = self._inputs.replaced
        if replaced:
            again = f", and again in {_count(self._repeated, 'call')} repeated for the backward pass" if self._repeated else ""
            logger.info(f"[load] step {self._step}: replaced {_count(replaced, 'input')} of {_count(self._calls, 'call')}{again}")
        self._counters = Counters()
        self._repeats.clear()
        self._matched.clear()
        self._inputs.replaced = self._calls = self._repeated = 0

    def at_exit(self) -> None:
        """The process ends: so does the step, and a run in which nothing could be replaced says so."""
        self.end_step()
        if not self._asked:
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
        repeats = not self.on or entry not in self._wanted
        if repeats:
            if origin is None:
                self._tell_unknown_repetition(name)
                return None
            entry = f"{name}.forward.{origin}"
            if entry not in self._wanted:
                return None
        else:
            self._matched.add(entry)
        if self._here is None:
            return None
        if torch.jit.is_tracing():
            self._warn(f"{entry} was called by torch.jit.trace, where inputs are not replaced")
            return None
        before = self._inputs.replaced
        exchanged = self._inputs.exchange(self._here, entry, args, kwargs, silent=repeats)
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
