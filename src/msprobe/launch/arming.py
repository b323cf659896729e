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
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.launch.exchange import Exchange, Leave
from msprobe.launch.orders import Orders, tell
from msprobe.log import logger

if TYPE_CHECKING:
    from msprobe.launch.watch import Watch

_OLDEST = (2, 6)
_ORDER = 60
"""Of so many steps of optimizers it is kept whose they were."""
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
        order: which optimizer made each of the first steps, numbered from 1.
        unseen: name of a compiled function in which no model was found -> outermost calls.
    """

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self.groups = 0
        self.plain: Counter[str] = Counter()
        self.unseen: Counter[str] = Counter()
        self.pid = os.getpid()
        self.order: list[int] = []
        self._called = False
        """Whether a module was called since the latest step of an optimizer."""
        self._watch: Watch | None = None
        self._done = False
        self._inside = _Inside()
        self._running: set[int] = set()
        self._lock = threading.RLock()
        self._followed: list[Exchange] = []
        self._module = Exchange(torch.nn.Module.__call__, self._module_called)
        self._added = Exchange(torch.optim.Optimizer.add_param_group, self._adds_group)
        self._scaler = Exchange(torch.amp.GradScaler.step, self._steps)
        self._compile = Exchange(torch.compile, self._compiles, exact=False)
        self._hooks: list[Any] = []
        self._befores: list[int] = []
        """How many steps had been made when those began that run now: one inside of another is not counted."""

    def on(self) -> None:
        """Watch from now on."""
        if self.orders.optimizer_steps == 1:
            self._hooks = [register_optimizer_step_post_hook(self._optimizer_stepped)]
        else:
            self._hooks = [
                register_optimizer_step_pre_hook(self._optimizer_begins),
                register_optimizer_step_post_hook(self._optimizer_ends),
            ]
        for exchange in (self._module, self._added, self._scaler, self._compile):
            exchange.on()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def off(self) -> None:
        """torch is as it was."""
        self._done = True
        for exchange in (self._module, self._added, self._scaler, self._compile, *self._followed):
            exchange.off()
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    # --- modules --------------------------------------------------------------------------------------------------------------------
    def _module_called(self, module: torch.nn.Module, /, *_args: Any, **_kwargs: Any) -> Leave | None:
        if torch.compiler.is_compiling() or self._inside.on:
            return None
        try:
            self._inside.on = True
            self._begins(module)
            self._module.off()  # what is inside is not looked at: it runs at full speed, and is compiled as it is
        except BaseException:  # a signal handler's
            self._module_left(False)
            raise
        return self._module_left

    def _module_left(self, _done: bool) -> None:
        self._running.discard(threading.get_ident())
        self._inside.on = False
        if not self._done:
            self._module.on()

    def _begins(self, module: torch.nn.Module) -> None:
        """An outermost call of a module."""
        if self._done or torch.jit.is_tracing():
            return
        try:
            with self._lock:
                self._called = True
                if not self._running:  # a call in another thread meanwhile belongs to the step that runs
                    if self._watch is None:
                        self._first(module)
                    if self._watch is not None:
                        self._watch.begins(module)
                self._running.add(threading.get_ident())
        except Exception as error:
            let_through(error)
            self.give_up(f"{type(error).__name__}: {error}")

    # --- compiled functions ---------------------------------------------------------------------------------------------------------
    def _compiles(self, *_args: Any, **_kwargs: Any) -> Leave | None:
        return None if torch.compiler.is_compiling() else self._follow_compiled

    def _follow_compiled(self, _done: bool) -> None:
        """torch.compile was used: from now on calls of compiled functions are seen, too."""
        try:
            from msprobe.pytorch.compile_internals import stance_reader

            function = stance_reader()
            if function is not None and not self._done:  # as a decorator with arguments it has not loaded dynamo yet, and is called again
                self._compile.off()
                exchange = Exchange(function, self._compiled_called)
                self._followed.append(exchange)
                exchange.on()
        except Exception as error:
            let_through(error)
            self.give_up(f"compiled functions could not be followed: {error!r}")

    def _compiled_called(self, *_: Any) -> None:
        """A compiled function begins, outside of a module's call. Whether it runs compiled is decided right after this."""
        if self._done or self._inside.on or torch.compiler.is_compiling():
            return
        try:
            from msprobe.launch.compiled import models_of_call
            from msprobe.pytorch.compile_internals import compiled_call, is_below_compiled_call

            frame = sys._getframe(2)
            call = compiled_call(frame)
            if call is None and frame.f_back is not None:  # the source of what was exchanged is not to be had: one frame more
                frame = frame.f_back
                call = compiled_call(frame)
            if call is None or self._running:
                return
            models = models_of_call(*call)
            with self._lock:
                if models and self._watch is None:
                    self._first(models[0])
                if models and self._watch is not None:
                    self._watch.compiled_begins(models, is_below_compiled_call(frame.f_back))
                elif not models and len(self.unseen) < _KINDS:
                    self.unseen[getattr(call[0], "__name__", type(call[0]).__name__)] += 1
        except Exception as error:
            let_through(error)
            self.give_up(f"{type(error).__name__}: {error}")

    def _first(self, module: torch.nn.Module) -> None:
        """Nothing has been taken as a model yet."""
        if torch.utils.data.get_worker_info() is not None:  # a data loader's worker records nothing
            self.off()
            return
        if self.orders.models == "auto" and next(iter(module.parameters()), None) is None:
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
            logger.error(f"msprobe run: nothing more is recorded in process {os.getpid()}: {reason}")

    # --- optimizers -----------------------------------------------------------------------------------------------------------------
    def _adds_group(self, optimizer: torch.optim.Optimizer, /, *_args: Any, **_kwargs: Any) -> Leave:
        return lambda done: self._group_added(optimizer) if done else None

    def _group_added(self, optimizer: torch.optim.Optimizer) -> None:
        try:
            self.groups += 1
            if all(known() is not optimizer for known in self.optimizers):
                self.optimizers.append(weakref.ref(optimizer))
            self.watch_step(type(optimizer))
        except Exception as error:
            let_through(error)
            self.give_up(f"an optimizer could not be followed: {error!r}")

    def watch_step(self, kind: type) -> None:
        """torch runs no hooks of optimizers that were made after `torch.compile`: their step is exchanged."""
        function = getattr(kind, "step", None)
        if self._done or not isinstance(function, FunctionType) or function.__code__ in _HOOKED:
            return
        if all(known.function is not function for known in self._followed):
            exchange = Exchange(function, self._steps)
            self._followed.append(exchange)
            exchange.on()

    def _steps(self, *args: Any, **_kwargs: Any) -> Leave | None:
        """A step that GradScaler leaves out, because of infinities, is one too."""
        if torch.compiler.is_compiling():
            return None
        before = self._made()
        optimizer = next((one for one in args[:2] if isinstance(one, torch.optim.Optimizer)), None)
        return lambda done: self._stepped(before, optimizer) if done else None

    def _optimizer_stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """torch.compile traces this with the step: a number would be guarded, and every step compiled anew."""
        watch = self._watch
        if watch is not None:
            watch.stepped = True
        if not torch.compiler.is_compiling():
            self._ordered(optimizer)

    def _optimizer_begins(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._befores.append(self._made())

    def _optimizer_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._stepped(self._befores.pop() if self._befores else self._made(), optimizer)
        else:
            self._optimizer_stepped(optimizer)

    def _made(self) -> int:
        return self._watch.optimizer_steps if self._watch is not None else 0

    def _ordered(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Keep whose step this was; a step inside of another is of the same one, with no call in between."""
        if self._watch is None or len(self.order) >= _ORDER:
            return
        number = next((place for place, known in enumerate(self.optimizers, 1) if known() is optimizer), 0)
        if number and (self._called or self.order[-1:] != [number]):
            self.order.append(number)
            self._called = False

    def _stepped(self, before: int, optimizer: torch.optim.Optimizer | None) -> None:
        """A step is over; with all that ran inside of it, such as a base class's own, it is one."""
        watch = self._watch
        if watch is not None:
            watch.optimizer_steps = max(watch.optimizer_steps, before + 1)
            self._ordered(optimizer)

    # --- the ends of the process ----------------------------------------------------------------------------------------------------
    def _forked(self) -> None:
        """In a forked child: it may be a training process of its own, and counts its own steps."""
        if self._done:
            return
        self.pid = os.getpid()
        tell("forked")
        self._lock = threading.RLock()
        self._inside.on = False
        self.order = []
        self._running.clear()  # of the threads that were in calls only this one is here
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.forget()
        self.plain.clear()
        self.unseen.clear()
        self._module.on()

    def at_exit(self) -> None:
        """The interpreter ends."""
        if os.getpid() != self.pid:
            return
        if self._watch is not None:
            self._watch.at_exit()
        elif not self._done and (self.plain or self.unseen):
            tell("plain", plain=dict(self.plain), unseen=dict(self.unseen))  # else a report says it
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
