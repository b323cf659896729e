"""Everything that belongs to one step of values saved by hand: debug.json, its tensor files, hooks for gradients."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.mindspore.dump.meta import environment
from msprobe.mindspore.dump.tensor_files import TensorFiles
from msprobe.mindspore.dump.values import Encoder, Path, PendingError, Record, Side
from msprobe.mindspore.mindspore_internals import is_made_by_graph
from msprobe.recording.meta import MOST_REASONS
from msprobe.recording.place import Place
from msprobe.recording.saved_keys import Keys
from msprobe.recording.saved_nesting import blank, put
from msprobe.recording.step import Step
from msprobe.recording.unrecorded import as_it_is
from msprobe.writer import StepWriter, TensorPool
from msprobe.writer.entry import Entry


class _SavedSide(Side):
    """One value while it is being recorded; `places` says where in it its tensors lie."""

    __slots__ = ("places",)

    def __init__(self, entry: str, save: bool) -> None:
        super().__init__(entry, "", save)
        self.places: list[Path] = []


class _SavedEncoder(Encoder):
    def tensor(self, tensor: Any, path: Path, side: Side) -> Record:
        if isinstance(side, _SavedSide) and len(side.places) < len(side.tensors):
            side.places.append(path)
        return super().tensor(tensor, path, side)


class SavedStep(Step):
    """One step of one process; its arguments are those of `Step`."""

    def __init__(self, config: Config, step: int, place: Place, pool: TensorPool | None) -> None:
        super().__init__(config, step, place, pool, layout.DEBUG, as_it_is)
        made_with = environment(step, place.rank)
        self.writer = StepWriter(self.directory, framework="mindspore", extra_info=False, document=layout.DEBUG, **self.settings)
        self.writer.meta.update(made_with)
        files = TensorFiles(self.tensor_directory, pool).save if pool is not None else None
        self.encoder = _SavedEncoder(files, self.report, config.section.summary_mode == "md5", self.writer.note_unread)
        self.lock = threading.RLock()
        self.closed = False
        self._keys = Keys()
        self._gradients: list[_Gradient] = []

    def save(self, variable: Any, name: str, save_backward: bool) -> None:
        """Record a value now, and its gradients when they come."""
        began = time.perf_counter()
        key, gradient_key = self._keys.take(name, save_backward)
        side = _SavedSide(key, self._pool is not None)
        record = self.encoder.value(variable, (), side)
        self.writer.add(key, record, True)
        if gradient_key is not None:
            gradient = _Gradient(self, gradient_key, record)
            self._gradients.append(gradient)
            gradient.attach(side.tensors, side.places)
        self.tally.calls += 1
        self.tally.tensors += len(side.tensors)
        self.tally.spent += time.perf_counter() - began

    @property
    def saving(self) -> bool:
        """Values get files."""
        return self._pool is not None

    def close(self, late: int) -> None:
        """End the step: hooks off, files complete, closing line said.

        Args:
            late: saved values of earlier steps whose gradients came too late, not yet told.
        """
        began = time.perf_counter()
        with self.lock:
            self.closed = True
        for gradient in self._gradients:
            self.whatever_happens(gradient.finish)
        self._gradients.clear()
        self.conclude(began, self._facts, verb="saved", late=late)

    def _facts(self) -> dict[str, Any]:
        recorded = {"tensors": self.tally.tensors, "calls": self.tally.calls}
        return {"recorded": recorded, "not_recorded": dict(self.unrecorded.reasons.most_common(MOST_REASONS))}


class _Gradient:
    """The gradients of one saved value; what a second backward pass brings stands beside the first under `.pass1`.

    A hook on a tensor that the graph makes stays until the graph goes, and tells what comes after the step's end; by then it holds nothing
    of the step. Every other hook is taken off: MindSpore would keep it for good.
    """

    def __init__(self, step: SavedStep, key: str, record: Record) -> None:
        self._step: SavedStep | None = step
        self._late = step.late
        self._key = key
        self._blank = blank(record)
        self._entries: list[Entry] = []
        self._fired: Counter[Path] = Counter()
        self._hooks: list[tuple[Path, Any, bool]] = []
        """Where in the value its tensor lies, the handle, and whether the graph makes the tensor."""
        self._told_late = False
        self._entry(step, 0)

    def attach(self, tensors: list[Any], places: list[Path]) -> None:
        """Put a hook on each of the tensors."""
        for tensor, path in zip(tensors, places, strict=False):
            try:
                self._hooks.append((path, tensor.register_hook(self._hook(path)), is_made_by_graph(tensor)))
            except Exception as error:  # a tensor of a kind that takes no hooks
                let_through(error)
                if self._step is not None:
                    self._step.report(self._key, f"its gradient cannot be followed: {error!r}")

    def _entry(self, step: SavedStep, number: int) -> Entry:
        while len(self._entries) <= number:
            name = f"{self._key}.pass{len(self._entries)}" if self._entries else self._key
            self._entries.append(step.writer.add(name, blank(self._blank), False))
        return self._entries[number]

    def _hook(self, path: Path) -> Any:
        """What register_hook takes; it returns None, so that the gradient stays what it is."""

        def arrived(gradient: Any) -> None:
            step = self._step
            try:
                if step is None or not self._take(step, path, gradient):
                    self._came_late()
            except Exception as error:
                let_through(error)
                if step is not None:
                    step.report(self._key, f"its gradient could not be recorded: {error!r}")
            except PendingError as pending:
                raise pending.error from None

        return arrived

    def _take(self, step: SavedStep, path: Path, gradient: Any) -> bool:
        """Record a gradient; gives False where the step has ended."""
        with step.lock:
            if step.closed:
                return False
            number = self._fired[path]
            self._fired[path] += 1
            entry = self._entry(step, number)
            record = step.encoder.value(gradient, path, Side(entry.name, "", step.saving))
            step.tally.tensors += 1
            put(entry, path, record)
            return True

    def _came_late(self) -> None:
        if not self._told_late:
            self._told_late = True
            self._late.came(self._key)

    def finish(self) -> None:
        """No gradient is recorded any more."""
        step, self._step = self._step, None
        for path, handle, stays in self._hooks:
            if stays and not self._fired[path]:
                continue
            try:
                handle.remove()
            except Exception as error:
                let_through(error)
        self._hooks.clear()
        for entry in self._entries:
            if step is not None:
                step.writer.finish(entry)
        self._entries.clear()
