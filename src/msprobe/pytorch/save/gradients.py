"""Gradients of saved values: hooks as `Tensor.register_hook` makes them, that return None and leave no trace on the tensor.

The hook of a tensor that is no leaf is known to its node in the graph alone. A leaf's stands in its dictionary of hooks until the step
ends: its node may be made and dropped at any time, and a gradient that `torch.autograd.grad` is asked for never gets to that node.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from time import perf_counter
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.encoder import Encoder, Path, Record, Side
from msprobe.pytorch.dump.stale_views import UNKNOWN
from msprobe.pytorch.save.encoder import SavedSide
from msprobe.recording.late_calls import LateInStep
from msprobe.recording.saved_nesting import blank, put
from msprobe.recording.unrecorded import Unrecorded
from msprobe.writer import StepWriter
from msprobe.writer.entry import Entry

_NoTorchFunction = torch_internals.NoTorchFunction


class _Hook:
    """Sits on one saved tensor; its n-th gradient goes into its place in the n-th entry."""

    __slots__ = ("__weakref__", "fired", "gradient", "path")
    __torch_unserializable__ = True
    """torch: a tensor that carries it may be pickled without a word about it."""

    def __init__(self, gradient: SavedGradient, path: Path) -> None:
        self.gradient = gradient
        self.path = path
        self.fired = 0

    def __call__(self, gradient: Any) -> None:
        try:
            self.gradient.arrived(self, gradient)
        except Exception as error:
            let_through(error)
            self.gradient.failed(error)

    def __del__(self) -> None:
        self.gradient.lost_hook()


class SavedGradient:
    """The gradient of one saved value: one entry for each backward pass that reaches it.

    Args:
        gradients: of the step.
        key: of the entry; a second one over the same graph is `{key}.pass1`.
        record: of the value, for its nesting.
    """

    def __init__(self, gradients: Gradients, key: str, record: Record) -> None:
        self._all = gradients
        self.key = key
        self._blank = blank(record)
        self.hooks = 0
        self._alive = 0
        self._left: dict[int, int] = {}
        self._entries: dict[int, Entry] = {}
        self._told_late = False

    def attach(self, tensors: list[torch.Tensor], places: list[Path]) -> None:
        """Put a hook on each of the tensors, and the first entry, without gradients, into the dump."""
        everything = self._all
        for tensor, path in zip(tensors, places, strict=True):
            hook = _Hook(self, path)
            self._alive += 1
            try:
                everything.put(tensor, hook)
            except Exception as error:
                let_through(error)
                everything.unrecorded.report(self.key, f" {'.'.join(path)}: its gradient cannot be followed: {error!r}")
                everything.writer.note_unread((self.key, "", path, "a gradient that could not be followed"))
            else:
                self.hooks += 1
        self._entry(0)

    def _entry(self, number: int) -> Entry:
        name = self.key if number == 0 else f"{self.key}.pass{number}"
        data = blank(self._blank) if number or self.hooks else self._blank
        entry = self._all.writer.add(name, data, not self.hooks)
        if self.hooks:
            self._entries[number] = entry
            self._left[number] = self.hooks
        return entry

    def arrived(self, hook: _Hook, gradient: Any) -> None:
        """A gradient has come."""
        everything = self._all
        if everything.closed:
            with everything.lock:
                if not self._told_late:
                    self._told_late = True
                    everything.late.came(self.key)
            return
        began = perf_counter()
        with everything.lock:
            number = hook.fired
            hook.fired += 1
            entry = self._entries.get(number) or self._entry(number)
        side = Side(entry.name, "", everything.saving)
        with _NoTorchFunction():
            record = everything.encoder.value(gradient, hook.path, side)
        with everything.lock:
            everything.tensors += side.tensors
            put(entry, hook.path, record)
            self._left[number] -= 1
            if not self._left[number]:
                self._finish(number)
            everything.spent += perf_counter() - began

    def failed(self, error: Exception) -> None:
        """Tell that a gradient could not be recorded; never raises."""
        self._all.unrecorded.report(self.key, f"its gradient could not be recorded: {error!r}")

    def lost_hook(self) -> None:
        """A hook died with its part of the graph; may be called anywhere, by the garbage collector, so it does next to nothing."""
        self._alive -= 1
        if not self._alive and self._entries:
            self._all.dead.append(self)

    def finish(self) -> None:
        """No gradient comes any more."""
        for number in list(self._entries):
            self._finish(number)

    def _finish(self, number: int) -> None:
        entry = self._entries.pop(number, None)
        if entry is not None:
            self._all.writer.finish(entry)


class Gradients:
    """All hooks of one step.

    Args:
        encoder: makes the records.
        writer: takes the entries.
        unrecorded: is told what cannot be recorded.
        late: is told what comes too late.
        saving: gradients get tensor files.
    """

    def __init__(self, encoder: Encoder, writer: StepWriter, unrecorded: Unrecorded, late: LateInStep, saving: bool) -> None:
        self.encoder, self.writer, self.unrecorded, self.late, self.saving = encoder, writer, unrecorded, late, saving
        self.lock = threading.RLock()
        self.closed = False
        self.tensors = 0
        self.spent = 0.0
        self.dead: deque[SavedGradient] = deque()
        """Gradients that can no longer come, and whose entries wait for them."""
        self._on_nodes: list[tuple[weakref.ref[Any], weakref.ref[_Hook]]] = []
        self._on_leaves: list[tuple[weakref.ref[torch.Tensor], weakref.ref[_Hook], bool]] = []
        self._sweep_at = 1024

    def watch(self, key: str, record: Record, side: SavedSide) -> None:
        """Record the gradients of a saved value from now on.

        Args:
            key: of the gradient's entry.
            record: of the value.
            side: the tensors in it that require grad, and where they lie.
        """
        with self.lock:
            while self.dead:
                self.dead.popleft().finish()
            SavedGradient(self, key, record).attach(side.leaves, side.places)

    def put(self, tensor: torch.Tensor, hook: _Hook) -> None:
        """Put a hook on a tensor."""
        with _NoTorchFunction():
            if torch_internals.is_stale_view(tensor):
                raise ValueError(UNKNOWN)
            if tensor.grad_fn is None:
                untouched = torch_internals.put_leaf_hook(tensor, hook)
                self._on_leaves.append((weakref.ref(tensor), weakref.ref(hook), untouched))
            else:
                hooks = torch_internals.put_tensor_hook(tensor, hook)
                self._on_nodes.append((weakref.ref(hooks), weakref.ref(hook)))
        if len(self._on_nodes) + len(self._on_leaves) > self._sweep_at:
            self._on_nodes = [item for item in self._on_nodes if item[1]() is not None]
            self._on_leaves = [item for item in self._on_leaves if item[1]() is not None]
            self._sweep_at = 2 * (len(self._on_nodes) + len(self._on_leaves)) + 1024

    def close(self) -> None:
        """End the step: hooks off, entries final. Hooks in the graph that never fired only count from now on."""
        with self.lock:
            self.closed = True
            waiting: list[SavedGradient] = []
            with _NoTorchFunction():
                for leaf_ref, hook_ref, untouched in reversed(self._on_leaves):
                    leaf, hook = leaf_ref(), hook_ref()
                    if leaf is not None and hook is not None:
                        waiting.append(hook.gradient)
                        torch_internals.take_leaf_hook(leaf, hook, untouched)
            for hooks_ref, hook_ref in self._on_nodes:
                hooks, hook = hooks_ref(), hook_ref()
                if hook is not None:
                    waiting.append(hook.gradient)
                    if hook.fired and hooks is not None:
                        hooks.clear()
            for gradient in (*waiting, *self.dead):
                gradient.finish()
            self._on_leaves, self._on_nodes = [], []
            self.dead.clear()

    def let_go(self) -> None:
        """Nothing of the step is needed any more; hooks that stay in a graph hold only this."""
        del self.encoder, self.writer
