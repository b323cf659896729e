"""Everything that belongs to one step of values saved by hand: debug.json, its tensor files, hooks for gradients."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from typing import Any

from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.log import logger
from msprobe.mindspore.dump.meta import environment
from msprobe.mindspore.dump.tensor_files import TensorFiles
from msprobe.mindspore.dump.values import Encoder, Path, PendingError, Record, Side
from msprobe.recording.closing_line import closing_line
from msprobe.recording.place import Place
from msprobe.recording.saved_keys import Keys
from msprobe.recording.step import remove_tensor_files
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


class SavedStep:
    """One step of one process.

    Args:
        config: the configuration.
        step: the step's number.
        place: where this process writes.
        pool: writes tensor files; None where no values are kept.
    """

    def __init__(self, config: Config, step: int, place: Place, pool: TensorPool | None) -> None:
        self.step = step
        self.directory = place.directory(place.root, step)
        self._step_directory = layout.step_dir(config.dump_path, step)
        self._pool = pool
        self._pool_before = (pool.bytes_written, Counter(pool.problems)) if pool is not None else (0, Counter[str]())
        tensors = os.path.join(self.directory, layout.TENSORS)
        remove_tensor_files(tensors)
        self.writer = StepWriter(
            self.directory,
            task=config.task,
            level=config.level,
            framework="mindspore",
            extra_info=False,
            tensors=pool is not None,
            lazy=pool is None,
            shown_as=place.directory(config.dump_path, step),
            document=layout.DEBUG,
        )
        self.writer.meta.update(environment(step, place.rank))
        files = TensorFiles(tensors, pool).save if pool is not None else None
        self.encoder = _SavedEncoder(files, self.report, config.section.summary_mode == "md5", self.writer.note_unread)
        self.lock = threading.RLock()
        self.closed = False
        self._keys = Keys()
        self._handles: list[Any] = []
        self._gradients: list[_Gradient] = []
        self._reasons: Counter[str] = Counter()
        self._lost = self._calls = self.tensors = 0
        self._spent = 0.0

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
            for tensor, path in zip(side.tensors, side.places, strict=False):
                try:
                    self._handles.append(tensor.register_hook(gradient.hook(path)))
                except Exception as error:  # an integer, or a tensor of a kind that takes no hooks
                    let_through(error)
                    self.report(gradient_key, f"its gradient cannot be followed: {error!r}")
        self._calls += 1
        self.tensors += len(side.tensors)
        self._spent += time.perf_counter() - began

    @property
    def saving(self) -> bool:
        """Values get files."""
        return self._pool is not None

    def report(self, name: str, reason: str) -> None:
        """Something could not be recorded: it is counted, and told once."""
        self._lost += 1
        self._reasons[reason] += 1
        if self._reasons[reason] == 1:
            self.writer.error(f"{name}: {reason}")

    def close(self) -> None:
        """End the step: hooks off, files complete, closing line said."""
        began = time.perf_counter()
        self.closed = True
        for handle in self._handles:
            try:
                handle.remove()
            except Exception as error:
                let_through(error)
        for gradient in self._gradients:
            gradient.finish()
        lost, reasons, size = self._lost, self._reasons, 0
        if self._pool is not None:
            bytes_before, problems_before = self._pool_before
            self._pool.drain()
            size = self._pool.bytes_written - bytes_before
            of_files = Counter(self._pool.problems) - problems_before
            lost += of_files.total()
            reasons = reasons + of_files
        self.writer.meta.update(recorded={"tensors": self.tensors, "calls": self._calls}, not_recorded=dict(reasons.most_common(200)))
        report = self.writer.close()
        logger.info(
            closing_line(
                self.step,
                tensors=self.tensors,
                calls=self._calls,
                modules=None,
                apis=None,
                size=size + report.bytes_written,
                seconds=self._spent + time.perf_counter() - began,
                lost=lost + sum(report.problems.values()),
                reasons=reasons + Counter(report.problems),
                where=layout.ERRORS,
                late=0,
                verb="saved",
            )
        )
        logger.info(f"{layout.DEBUG} is at {self._step_directory}")


class _Gradient:
    """The gradients of one saved value; what a second backward pass brings stands beside the first under `.pass1`."""

    def __init__(self, step: SavedStep, key: str, record: Record) -> None:
        self._step = step
        self._key = key
        self._blank = blank(record)
        self._entries: list[Entry] = []
        self._fired: Counter[Path] = Counter()
        self._entry(0)

    def _entry(self, number: int) -> Entry:
        while len(self._entries) <= number:
            name = f"{self._key}.pass{len(self._entries)}" if self._entries else self._key
            self._entries.append(self._step.writer.add(name, blank(self._blank), False))
        return self._entries[number]

    def hook(self, path: Path) -> Any:
        """What register_hook takes; it returns None, so that the gradient stays what it is."""

        def arrived(gradient: Any) -> None:
            try:
                self._take(path, gradient)
            except Exception as error:
                let_through(error)
                self._step.report(self._key, f"its gradient could not be recorded: {error!r}")
            except PendingError as pending:
                raise pending.error from None

        return arrived

    def _take(self, path: Path, gradient: Any) -> None:
        step = self._step
        if step.closed:
            return
        with step.lock:
            number = self._fired[path]
            self._fired[path] += 1
            entry = self._entry(number)
            record = step.encoder.value(gradient, path, Side(entry.name, "", step.saving))
            step.tensors += 1
            put(entry, path, record)

    def finish(self) -> None:
        """No gradient comes any more."""
        for entry in self._entries:
            self._step.writer.finish(entry)


def blank(record: Record) -> Record:
    """The same nesting with null for every value: what a gradient's entry holds before the gradient comes."""
    if type(record) is list:
        return [blank(item) for item in record]
    if type(record) is dict and not isinstance(record.get("type"), str):
        return {key: blank(item) for key, item in record.items()}
    return None


def put(entry: Entry, path: Path, record: Record) -> None:
    """Put a gradient into its place."""
    if not path:
        entry.data = record
        return
    inside: Any = entry.data
    for key in path[:-1]:
        inside = inside[int(key)] if type(inside) is list else inside[key]
    if type(inside) is list:
        inside[int(path[-1])] = record
    else:
        inside[path[-1]] = record
