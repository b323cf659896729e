"""torch is imported, in a process below `msprobe run`: from here outermost calls of modules are seen, and optimizers as they are made.

What records is imported with the first call of a module that may be a model: launchers and helpers that only import torch pay nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.launch.exchange import Exchange
from msprobe.launch.orders import Orders, tell

if TYPE_CHECKING:
    from msprobe.launch.watch import Watch

_OLDEST = (2, 6)
_KINDS = 200
"""Of so many classes the calls are counted for the report."""


class _Inside(threading.local):
    """Whether this thread is in a call of a module."""

    on = False


class Armed:
    """What is switched on in a process; there is at most one.

    Attributes:
        optimizers: in the order in which they got their first parameters.
        groups: grows with every group of parameters that an optimizer gets.
        plain: class of a module without parameters -> outermost calls.
    """

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self.groups = 0
        self.plain: Counter[str] = Counter()
        self.pid = os.getpid()
        self._watch: Watch | None = None
        self._done = False
        self._inside = _Inside()
        self._running: set[int] = set()
        self._lock = threading.RLock()
        self._steps: list[Exchange] = []
        self._module = Exchange(torch.nn.Module.__call__, self._module_call)
        self._added = Exchange(torch.optim.Optimizer.add_param_group, self._group_added)
        self._scaler = Exchange(torch.amp.GradScaler.step, self._stepped_after)
        self._hooks: list[Any] = []
        self._befores: list[int] = []
        """How many steps had been made when those began that run now: one inside of another is not counted."""

    def on(self) -> None:
        """Watch from now on."""
        self._hooks = [register_optimizer_step_pre_hook(self._optimizer_begins), register_optimizer_step_post_hook(self._optimizer_ends)]
        for exchange in (self._module, self._added, self._scaler):
            exchange.on()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def off(self) -> None:
        """torch is as it was."""
        self._done = True
        for exchange in (self._module, self._added, self._scaler, *self._steps):
            exchange.off()
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    # --- modules --------------------------------------------------------------------------------------------------------------------
    def _module_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        inside, running, is_compiling = self._inside, self._running, torch.compiler.is_compiling

        def call(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or inside.on:
                return original(module, *args, **kwargs)
            thread = threading.get_ident()
            try:
                inside.on = True
                if not running:  # a call in another thread meanwhile belongs to the step that runs
                    self._begins(module)
                running.add(thread)
                self._module.off()  # what is inside is not looked at: it runs at full speed, and is compiled as it is
                return original(module, *args, **kwargs)
            finally:
                running.discard(thread)
                inside.on = False
                if not self._done:
                    self._module.on()

        return call

    def _begins(self, module: torch.nn.Module) -> None:
        """An outermost call of a module."""
        if self._done or torch.jit.is_tracing():
            return
        try:
            with self._lock:
                if self._watch is None:
                    self._first(module)
                if self._watch is not None:
                    self._watch.begins(module)
        except Exception as error:
            let_through(error)
            self.give_up(f"{type(error).__name__}: {error}")

    def _first(self, module: torch.nn.Module) -> None:
        """Nothing has been taken as a model yet."""
        if torch.utils.data.get_worker_info() is not None:  # a data loader's worker records nothing
            self.off()
            return
        if self.orders.models == "auto" and next(module.parameters(), None) is None:
            if len(self.plain) < _KINDS:
                self.plain[type(module).__name__] += 1
            return
        from msprobe.launch.watch import Watch

        self._watch = Watch(self)
        atexit.register(self.at_exit)  # once more: it must come before the writer's own

    def give_up(self, reason: str) -> None:
        """Something of ours went wrong: the script goes on, and is told."""
        self.off()
        if self._watch is not None:
            try:
                self._watch.abandon()
            except Exception as error:
                let_through(error)
                reason += f"; the running step could not be ended: {error!r}"
        if not tell("failed", reason=reason):
            print(f"msprobe run: nothing more is recorded in process {os.getpid()}: {reason}", file=sys.stderr)

    # --- optimizers -----------------------------------------------------------------------------------------------------------------
    def _group_added(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def added(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            result = original(optimizer, *args, **kwargs)
            try:
                self.groups += 1
                if all(known() is not optimizer for known in self.optimizers):
                    self.optimizers.append(weakref.ref(optimizer))
                self.watch_step(type(optimizer))
            except Exception as error:
                let_through(error)
                self.give_up(f"an optimizer could not be followed: {error!r}")
            return result

        return added

    def watch_step(self, kind: type) -> None:
        """torch runs no hooks of optimizers that were made after `torch.compile`: their step is exchanged."""
        function = getattr(kind, "step", None)
        if self._done or not isinstance(function, FunctionType) or function.__code__ in _HOOKED:
            return
        if all(known.function is not function for known in self._steps):
            exchange = Exchange(function, self._stepped_after)
            self._steps.append(exchange)
            exchange.on()

    def _stepped_after(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A step that GradScaler leaves out, because of infinities, is one too."""
        is_compiling = torch.compiler.is_compiling

        def step(*args: Any, **kwargs: Any) -> Any:
            before = self._made()
            result = original(*args, **kwargs)
            if not is_compiling():
                self._stepped(before)
            return result

        return step

    def _optimizer_begins(self, *_: Any) -> None:
        self._befores.append(self._made())

    def _optimizer_ends(self, *_: Any) -> None:
        self._stepped(self._befores.pop() if self._befores else self._made())

    def _made(self) -> int:
        return self._watch.optimizer_steps if self._watch is not None else 0

    def _stepped(self, before: int) -> None:
        """A step is over; with all that ran inside of it, such as a base class's own, it is one."""
        watch = self._watch
        if watch is not None:
            watch.optimizer_steps = max(watch.optimizer_steps, before + 1)

    # --- the ends of the process ----------------------------------------------------------------------------------------------------
    def _forked(self) -> None:
        """In a forked child: where nothing was recorded before, it may be a training process of its own."""
        if self._done:
            return
        self.pid = os.getpid()
        self._lock = threading.RLock()
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.forget()
            self.off()

    def at_exit(self) -> None:
        """The interpreter ends."""
        if os.getpid() != self.pid:
            return
        if self._watch is not None:
            self._watch.at_exit()
        elif not self._done and self.plain:
            tell("plain", plain=dict(self.plain))  # else a report says it
        self.off()


def _codes_inside(function: Any) -> frozenset[CodeType]:
    return frozenset(constant for constant in function.__code__.co_consts if isinstance(constant, CodeType))


_HOOKED = _codes_inside(torch.optim.Optimizer.profile_hook_step)
"""The code of a step that calls hooks."""


def arm() -> None:
    """Watch this process.

    Raises:
        UsageError: the orders, or torch, are none that we can work with.
    """
    orders = Orders.read()
    version = tuple(int(part) for part in torch.__version__.split(".")[:2] if part.isdigit())
    if version < _OLDEST:
        raise UsageError(f"torch {torch.__version__} is too old: 2.6 or newer is needed")
    armed = Armed(orders)
    armed.on()
    atexit.register(armed.at_exit)
    tell("torch")
