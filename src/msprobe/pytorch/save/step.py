"""Everything that belongs to one step of values saved by hand."""

from __future__ import annotations

import time
from typing import Any

from msprobe.config import Config
from msprobe.format import layout
from msprobe.pytorch.dump import meta
from msprobe.pytorch.save.call_sites import CallSites, SavedAt
from msprobe.pytorch.save.encoder import SavedSide, make_encoder
from msprobe.pytorch.save.gradients import Gradients
from msprobe.pytorch.save.names import UniqueSaver
from msprobe.pytorch.save.writer import writer_class
from msprobe.pytorch.torch_internals import NoTorchFunction
from msprobe.recording.meta import counts
from msprobe.recording.place import Place
from msprobe.recording.saved_keys import Keys
from msprobe.recording.saved_nesting import blank
from msprobe.recording.step import Step
from msprobe.recording.unrecorded import of_saved_value
from msprobe.writer import TensorPool


class SavedStep(Step):
    """One step of one process.

    Args:
        config, step, place, pool: see `Step`.
        sites: of the process.
    """

    def __init__(self, config: Config, step: int, place: Place, pool: TensorPool | None, sites: CallSites) -> None:
        super().__init__(config, step, place, pool, layout.DEBUG, of_saved_value)
        made_with = meta.environment(step, place.rank)
        self.writer = writer_class(config)(self.directory, **self.settings)
        self.writer.meta.update(made_with)
        self._saved_at = SavedAt(sites, self.writer.meta, self.unrecorded)
        saver = UniqueSaver(self.tensor_directory, pool) if pool is not None else None
        self._encoder = make_encoder(config, self.writer, saver, self.unrecorded)
        self.gradients = Gradients(self._encoder, self.writer, self.unrecorded, self.late, pool is not None)
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
        tally = self.tally
        tally.tensors += self.gradients.tensors
        tally.spent += self.gradients.spent
        self.conclude(began, lambda: counts(tally, self.unrecorded.lines, 0, 0), late=late, verb="saved")
        self.gradients.let_go()
