"""Everything that belongs to one step: its files, numbers, observers and tallies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msprobe.config import Config
from msprobe.pytorch.dump import meta
from msprobe.pytorch.dump.checks.checked_writer import CheckedWriter
from msprobe.pytorch.dump.checks.choosing import Nothing, make_check
from msprobe.pytorch.dump.checks.earlier_dump import EarlierDump
from msprobe.pytorch.dump.checks.nan_check import EXTRA_INFO
from msprobe.pytorch.dump.common_case import is_common
from msprobe.pytorch.dump.common_gradients import COMMON, IN_PYTHON
from msprobe.pytorch.dump.ended_step import EndedStep
from msprobe.pytorch.dump.forgotten_step import ForgottenStep
from msprobe.pytorch.dump.kinds_of_step import make_encoder, writer_class
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.pytorch.torch_internals import NoTorchFunction
from msprobe.recording.place import Place
from msprobe.recording.selection import Selection
from msprobe.recording.step import remove_tensor_files
from msprobe.recording.step_of_calls import StepOfCalls
from msprobe.writer import TensorPool


class StepRecord(StepOfCalls):
    """One step of one process.

    Args:
        config, step, place, selection, pool: see `StepOfCalls`.
        earlier: the dump that this run is compared with.
    """

    def __init__(
        self,
        config: Config,
        step: int,
        place: Place,
        selection: Selection,
        pool: TensorPool | None,
        earlier: EarlierDump | None = None,
    ) -> None:
        super().__init__(config, step, place, selection, pool)
        made_with = meta.environment(step, place.rank)
        self.forgotten = ForgottenStep()
        check = make_check(config, step, place.rank, self.directory, selection, pool, earlier, self._end_early)
        self.check = check
        if not self.is_new:
            remove_tensor_files(os.path.join(self.directory, EXTRA_INFO))
        if config.task == "nan_check":
            self.settings["tensors"] = False
        if check is None:
            self.writer = writer_class(config)(self.directory, **self.settings)
        else:
            self.writer = CheckedWriter(check, self.report, self.directory, **self.settings)
        self.writer.meta.update(made_with)
        saver = TensorSaver(self.tensor_directory, pool) if pool is not None else None
        self.saver = saver
        self.encoder = make_encoder(config, self.writer, saver if check is None else check.held, self.report)
        self.save_all = config.task == "tensor" and check is None
        sides = selection.sides
        observers, parameter_gradients = COMMON if is_common(self) else IN_PYTHON
        self.observers = observers(
            self.encoder,
            self,
            self.report,
            self.late.came,
            keep_input=sides.input,
            keep_output=sides.output,
            takes_all=selection.everything,
            saving=pool is not None,
        )
        self.parameter_gradients = parameter_gradients(self.observers)
        self.failed: dict[str, tuple[Callable[[], None], str | None]] = {}
        """API calls that raised, what makes their entry final, and their parent: inputs only. Their name is free for the next call."""
        self._loose_parents: set[str] = set()
        self.counted_in_c: list[Callable[[Any], None]] = []
        """Each adds to a tally what has been counted in C since it was called last."""

    # --- what observers ask ---------------------------------------------------------------------------------------------------------
    def wants(self, name: str, parent: str | None = None) -> bool:
        """Whether a backward entry is recorded."""
        return self.selection.enters(name, parent)

    def saves(self, name: str) -> bool:
        """Whether an entry's tensors get files."""
        if self.save_all:
            return True
        if self.check is not None:
            return self.check.saves(name)
        return self.saver is not None and self.selection.saves_tensors(name)

    def count(self, tensors: int) -> None:
        """Add to the number of recorded tensors."""
        self.tally.tensors += tensors

    def add(self, name: str, parent: str | None, data: dict[str, Any], tensors: int, done: bool) -> Any:
        """Put a backward or gradient entry into the dump."""
        tally = self.tally
        tally.calls += 1
        tally.tensors += tensors
        if self.keeps_construct and ".parameters_grad." not in name:
            self.writer.add_call(name, parent)
        return self.writer.add(name, data, done)

    def finish(self, entry: Any) -> None:
        """An entry that was added unfinished is final."""
        self.writer.finish(entry)

    def add_loose_parent(self, name: str) -> None:
        """`optimizer` or `clip_grad`: the parent of APIs that belong to no module."""
        if name not in self._loose_parents:
            self._loose_parents.add(name)
            self.writer.add_call(name, None)

    def _end_early(self) -> None:
        """Nothing more of this step is recorded; what is running keeps its place and is ended as usual."""
        self.selection = Nothing(self.selection)
        self.observers.takes_all = False

    # --- the end --------------------------------------------------------------------------------------------------------------------
    def calls_so_far(self) -> int:
        """Calls of modules; of APIs where no modules are recorded."""
        return self.counters.calls("Module." if self.config.level != "L1" else "")

    def close(self, late: int) -> None:
        """End the step: observers off, files complete, closing line said.

        Args:
            late: calls of earlier steps whose backward pass came too late, not yet told.
        """
        began = time.perf_counter()
        with NoTorchFunction():  # a function mode of the user's sees nothing of it, and cannot keep it from happening
            self.whatever_happens(self.observers.close)
            self.whatever_happens(self.parameter_gradients.close)
            for finish, _ in self.failed.values():
                self.whatever_happens(finish)
            self.whatever_happens(self.encoder.settle)
        if self.config.task == "structure":
            self.tally.tensors = 0  # gradients of parameters were counted as they came
        self.tally.spent += self.observers.spent
        for settle in self.counted_in_c:
            self.whatever_happens(partial(settle, self.tally))
        check = self.check
        if check is None:
            self.conclude_calls(began, late)
        else:
            self.conclude_calls(began, late, check.facts, lambda: f"; {check.summary()}")
        self.observers.sink = EndedStep(self)
        self.parameter_gradients.reduced = None
        self.counted_in_c.clear()
        self.failed.clear()
