"""Everything that belongs to one step of values saved by hand."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

from msprobe.config import Config
from msprobe.format import layout
from msprobe.log import logger
from msprobe.pytorch.dump import meta
from msprobe.pytorch.dump.step_record import Tally, remove_tensor_files
from msprobe.pytorch.save.call_sites import CallSites, SavedAt
from msprobe.pytorch.save.encoder import SavedSide, blank, make_encoder
from msprobe.pytorch.save.gradients import Gradients
from msprobe.pytorch.save.names import UniqueSaver
from msprobe.pytorch.save.unrecorded import Unrecorded
from msprobe.pytorch.save.writer import writer_class
from msprobe.pytorch.torch_internals import NoTorchFunction
from msprobe.recording.closing_line import closing_line
from msprobe.recording.place import Place
from msprobe.recording.saved_keys import Keys
from msprobe.writer import TensorPool


class SavedStep:
    """One step of one process.

    Args:
        config: the configuration.
        step: the step's number.
        place: where this process writes.
        pool: writes tensor files; None where no values are kept.
        sites: of the process.
    """

    def __init__(self, config: Config, step: int, place: Place, pool: TensorPool | None, sites: CallSites) -> None:
        self.step = step
        self.step_directory = layout.step_dir(config.dump_path, step)
        self.directory = place.directory(place.root, step)
        self._pool = pool
        self._pool_before = (pool.bytes_written, Counter(pool.problems)) if pool is not None else (0, Counter[str]())
        tensors = os.path.join(self.directory, layout.TENSORS)
        remove_tensor_files(tensors)
        self.tally = Tally()
        self.writer = writer_class(config)(
            self.directory,
            task=config.task,
            level=config.level,
            tensors=pool is not None,
            lazy=pool is None,
            shown_as=place.directory(config.dump_path, step),
        )
        self.writer.meta.update(meta.environment(step, place.rank))
        self._unrecorded = Unrecorded(self.writer.error)
        self._saved_at = SavedAt(sites, self.writer.meta, self._unrecorded)
        saver = UniqueSaver(tensors, pool) if pool is not None else None
        self._encoder = make_encoder(config, self.writer, saver, self._unrecorded)
        self.gradients = Gradients(self._encoder, self.writer, self._unrecorded, self.tally, pool is not None)
        self._keys = Keys()

    def save(self, variable: Any, name: str, save_backward: bool) -> None:
        """Record a value now, and its gradients when they come."""
        began = time.perf_counter()
        key, gradient_key = self._keys.take(name, save_backward)
        side = SavedSide(key, self._pool is not None)
        with NoTorchFunction():
            record = self._encoder.value(variable, (), side)
        self.writer.add(key, record, True)
        self._saved_at.note(name, key)
        if gradient_key is not None:
            if side.leaves:
                self.gradients.watch(gradient_key, record, side)
            else:
                self.writer.add(gradient_key, blank(record), True)
        self.tally.calls += 1
        self.tally.tensors += side.tensors
        self.tally.spent += time.perf_counter() - began

    def report(self, name: str, reason: str) -> None:
        """A value could not be recorded."""
        self._unrecorded.report(name, reason)

    def forget(self) -> None:
        """This is a forked child: nothing is recorded here."""
        self.gradients.closed = True

    def close(self, late: int) -> None:
        """End the step: hooks off, files complete, closing line said.

        Args:
            late: saved values of earlier steps whose gradients came too late, not yet told.
        """
        began = time.perf_counter()
        self.gradients.close()
        self._encoder.settle()
        tally, lost, reasons, size = self.tally, self._unrecorded.count, self._unrecorded.reasons, 0
        if self._pool is not None:
            bytes_before, problems_before = self._pool_before
            self._pool.drain()
            size += self._pool.bytes_written - bytes_before
            of_files = Counter(self._pool.problems) - problems_before
            lost += of_files.total()
            reasons += of_files
        tally.tensors += self.gradients.tensors
        tally.spent += self.gradients.spent
        self.writer.meta.update(meta.counts(tally, self._unrecorded.lines, 0, 0))
        report = self.writer.close()
        tally.spent += time.perf_counter() - began
        logger.info(
            closing_line(
                self.step,
                tensors=tally.tensors,
                calls=tally.calls,
                modules=None,
                apis=None,
                size=size + report.bytes_written,
                seconds=tally.spent,
                lost=lost + sum(report.problems.values()),
                reasons=reasons + Counter(report.problems),
                where=layout.ERRORS,
                late=late,
                verb="saved",
            )
        )
        if report.lost or not os.path.exists(os.path.join(self.directory, layout.DEBUG)):
            logger.warning(f"{layout.DEBUG} of step {self.step} is not complete: {'; '.join(report.problems) or 'it could not be written'}")
        logger.info(f"{layout.DEBUG} is at {self.step_directory}")
        self.gradients.let_go()
