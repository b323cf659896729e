"""Everything that belongs to one step: its files, numbers, observers and tallies."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.log import logger
from msprobe.pytorch.dump import meta
from msprobe.pytorch.dump.checks.checked_writer import CheckedWriter
from msprobe.pytorch.dump.checks.choosing import Nothing, make_check
from msprobe.pytorch.dump.checks.earlier_dump import EarlierDump
from msprobe.pytorch.dump.checks.nan_check import EXTRA_INFO
from msprobe.pytorch.dump.forgotten_step import ForgottenStep
from msprobe.pytorch.dump.gradients import GradientObservers
from msprobe.pytorch.dump.kinds_of_step import make_encoder, writer_class
from msprobe.pytorch.dump.parameter_gradients import ParameterGradients
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.recording.closing_line import closing_line
from msprobe.recording.counters import Counters
from msprobe.recording.place import Place
from msprobe.recording.selection import Selection
from msprobe.writer import TensorPool

_PLACE = re.compile(r"(?:input|output|kwargs|parameters|parameters_grad)(?: [^:]*)?: ")
"""Where in a call a value stands: the closing line leaves it out, and so counts equal reasons together."""


@dataclass
class Tally:
    """What the closing line of a step says."""

    tensors: int = 0
    calls: int = 0
    apis: int = 0
    spent: float = 0.0
    not_recorded: int = 0
    late: int = 0
    modules: set[str] = field(default_factory=set)
    modules_hooked: int = 0

    def take_late(self) -> int:
        """Calls whose backward pass came after this step had ended, and that no closing line has told yet."""
        late, self.late = self.late, 0
        return late


class StepRecord:
    """One step of one process.

    Args:
        config: the configuration.
        step: the step's number.
        place: where this process writes.
        selection: what is recorded.
        pool: writes tensor files; None where no values are kept.
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
        self.config = config
        self.step = step
        self.step_directory = layout.step_dir(config.dump_path, step)
        shown_as = place.directory(config.dump_path, step)
        self.directory = place.directory(place.root, step)
        self.selection = selection
        self.counters = Counters()
        self.forgotten = ForgottenStep()
        self.tally = Tally()
        self._pool = pool
        self._pool_before = (pool.bytes_written, Counter(pool.problems)) if pool is not None else (0, Counter[str]())
        check = make_check(config, step, place.rank, self.directory, selection, pool, earlier, self._end_early)
        self.check = check
        for name in (layout.TENSORS, EXTRA_INFO):
            remove_tensor_files(os.path.join(self.directory, name))
        settings: dict[str, Any] = {
            "task": config.task,
            "level": config.level,
            "framework": "pytorch",
            "extra_info": config.extra_info,
            "tensors": pool is not None and config.task != "nan_check",
            "lazy": pool is None,  # with tensor files the directory is there at once, and so is what makes it a dump
            "shown_as": shown_as,
        }
        if check is None:
            self.writer = writer_class(config)(self.directory, **settings)
        else:
            self.writer = CheckedWriter(check, self.report, self.directory, **settings)
        self.writer.meta.update(meta.environment(step, place.rank))
        saver = TensorSaver(os.path.join(self.directory, layout.TENSORS), pool) if pool is not None else None
        self.saver = saver
        self.encoder = make_encoder(config, self.writer, saver if check is None else check.held, self.report)
        self.save_all = config.task == "tensor" and check is None
        sides = selection.sides
        self.observers = GradientObservers(
            self.encoder,
            self,
            self.report,
            self._late,
            keep_input=sides.input,
            keep_output=sides.output,
            takes_all=selection.everything,
            saving=pool is not None,
        )
        self.parameter_gradients = ParameterGradients(self.observers)
        self.keeps_construct = config.level != "L1"
        self.failed: dict[str, tuple[Callable[[], None], str | None]] = {}
        """API calls that raised, what makes their entry final, and their parent: inputs only. Their name is free for the next call."""
        self._told: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._loose_parents: set[str] = set()

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

    def report(self, entry: str, reason: str) -> None:
        """Something could not be recorded: it is counted, and its reason goes to dump_error_info.log (once for each text)."""
        self.tally.not_recorded += 1
        try:
            self._note(entry, reason)
        except Exception as caught:
            let_through(caught)  # an error in telling of an error has nobody left to tell; it is counted

    def _note(self, entry: str, reason: str) -> None:
        why = reason[found.end() :] if (found := _PLACE.match(reason)) else reason
        if len(self._reasons) < 1000 or why in self._reasons:
            self._reasons[why] += 1
        line = f"{entry}: {reason}"
        if len(self._told) < 10_000 or line in self._told:
            self._told[line] += 1
            if self._told[line] == 1:
                self.writer.error(line)

    def add_loose_parent(self, name: str) -> None:
        """`optimizer` or `clip_grad`: the parent of APIs that belong to no module."""
        if name not in self._loose_parents:
            self._loose_parents.add(name)
            self.writer.add_call(name, None)

    def _end_early(self) -> None:
        """Nothing more of this step is recorded; what is running keeps its place and is ended as usual."""
        self.selection = Nothing(self.selection)
        self.observers.takes_all = False

    def _late(self) -> None:
        self.tally.late += 1

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
        self._whatever_happens(self.observers.close)
        self._whatever_happens(self.parameter_gradients.close)
        for finish, _ in self.failed.values():
            self._whatever_happens(finish)
        self._whatever_happens(self.encoder.settle)
        if self.config.task == "structure":
            self.tally.tensors = 0  # gradients of parameters were counted as they came
        tally, size = self.tally, 0
        if self._pool is not None:
            self._whatever_happens(self._pool.drain)
        called, apis = self.counters.totals("Module.")
        self._whatever_happens(lambda: self.writer.meta.update(meta.counts(tally, self._told, called, apis)))
        check = self.check
        if check is not None:
            self._whatever_happens(lambda: self.writer.meta.update(check.facts()))
        lost, reasons = tally.not_recorded, self._reasons
        if self._pool is not None:
            bytes_before, problems_before = self._pool_before
            size += self._pool.bytes_written - bytes_before
            of_files = Counter(self._pool.problems) - problems_before
            lost += of_files.total()
            reasons += of_files
        report = self.writer.close()
        tally.spent += self.observers.spent + time.perf_counter() - began
        text = closing_line(
            self.step,
            tensors=tally.tensors,
            calls=tally.calls,
            modules=(len(tally.modules), tally.modules_hooked) if tally.modules_hooked else None,
            apis=(tally.apis, apis) if self.config.level != "L0" else None,
            size=size + report.bytes_written,
            seconds=tally.spent,
            lost=lost + sum(report.problems.values()),
            reasons=reasons + Counter(report.problems),
            where=layout.ERRORS,
            late=late,
        )
        if check is not None:
            text += f"; {check.summary()}"
        if not tally.calls:
            logger.warning(f"{text}: nothing was recorded between start() and step(){self._why_nothing()}")
        else:
            logger.info(text)
        if report.lost or not os.path.exists(os.path.join(self.directory, layout.DUMP)):
            logger.warning(f"{layout.DUMP} of step {self.step} is not complete: {'; '.join(report.problems) or 'it could not be written'}")
        logger.info(f"{layout.DUMP} is at {self.step_directory}")

    def _whatever_happens(self, part: Callable[[], None]) -> None:
        """Do a part of ending the step: the files are completed also when it fails."""
        try:
            part()
        except Exception as error:
            let_through(error)
            self.report(f"end of step {self.step}", repr(error))

    def _why_nothing(self) -> str:
        if not self.selection.everything:
            return ': "list" or "scope" matched no call'
        if self.config.level == "L0" and not self.tally.modules_hooked:
            return ": the model holds no modules (a model itself is not recorded, only what is inside it)"
        if self.config.level != "L1" and self.tally.modules_hooked:
            return ": no module of the model given to start() was called"
        return ""


def remove_tensor_files(directory: str) -> None:
    """What an earlier run left in a directory that is used again."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if name.endswith((".pt", ".npy")):
            try:
                os.unlink(os.path.join(directory, name))
            except OSError:
                pass
