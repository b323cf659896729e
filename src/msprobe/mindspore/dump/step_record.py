"""Everything that belongs to one step: its files, numbers, gradients and tallies."""

from __future__ import annotations

import time
from typing import Any

from msprobe.config import Config
from msprobe.mindspore.dump.gradients import GradientObservers
from msprobe.mindspore.dump.meta import environment
from msprobe.mindspore.dump.parameter_gradients import ParameterGradients
from msprobe.mindspore.dump.tensor_files import TensorFiles
from msprobe.mindspore.dump.values import Encoder
from msprobe.recording.place import Place
from msprobe.recording.selection import Selection
from msprobe.recording.step_of_calls import StepOfCalls
from msprobe.writer import StepWriter, TensorPool
from msprobe.writer.entry import Entry
from msprobe.writer.structure import StructureWriter


class StepRecord(StepOfCalls):
    """One step of one process; its arguments are those of `StepOfCalls`."""

    MODULE = "cell"

    def __init__(self, config: Config, step: int, place: Place, selection: Selection, pool: TensorPool | None) -> None:
        super().__init__(config, step, place, selection, pool)
        made_with = environment(step, place.rank)
        self.closed = False
        self.structure_only = config.task == "structure"
        writer_class = StructureWriter if self.structure_only else StepWriter
        self.writer = writer_class(self.directory, framework="mindspore", **self.settings)
        self.writer.meta.update(made_with)
        files = TensorFiles(self.tensor_directory, pool) if pool is not None else None
        self.encoder = Encoder(
            files.save if files is not None else None, self.report, config.section.summary_mode == "md5", self.writer.note_unread
        )
        self.gradients = GradientObservers(self)
        self.parameter_gradients = ParameterGradients(self)

    def saves(self, name: str) -> bool:
        """Whether an entry's tensors get files."""
        return self._pool is not None and (self.config.task == "tensor" or self.selection.saves_tensors(name))

    def add(self, name: str, data: dict[str, Any], done: bool) -> Entry:
        """Put an entry into the dump."""
        self.tally.calls += 1
        return self.writer.add(name, data, done)

    def close(self, late: int) -> None:
        """End the step: hooks off, files complete, closing line said.

        Args:
            late: calls of earlier steps whose backward pass came too late, not yet told.
        """
        began = time.perf_counter()
        self.closed = True
        self.whatever_happens(self.gradients.close)
        self.whatever_happens(self.parameter_gradients.close)
        self.conclude_calls(began, late)
