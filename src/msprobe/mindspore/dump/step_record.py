"""Everything that belongs to one step: its files, numbers, gradients and tallies."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import mindspore
import msprobe
from msprobe import numerics
from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.log import logger
from msprobe.mindspore.dump.gradients import GradientObservers
from msprobe.mindspore.dump.parameter_gradients import ParameterGradients
from msprobe.mindspore.dump.structure import StructureWriter
from msprobe.mindspore.dump.tensor_files import TensorFiles
from msprobe.mindspore.dump.values import Encoder
from msprobe.recording.closing_line import closing_line
from msprobe.recording.counters import Counters
from msprobe.recording.place import Place
from msprobe.recording.selection import Selection
from msprobe.writer import StepWriter, TensorPool
from msprobe.writer.entry import Entry

_PLACE = re.compile(r"(?:input|output|kwargs|parameters|parameters_grad)(?: [^:]*)?: ")
"""Where in a call a value stands: the closing line leaves it out, and so counts equal reasons together."""
_MAX_REASONS = 200


@dataclass
class Tally:
    """What the closing line of a step says."""

    tensors: int = 0
    calls: int = 0
    apis: int = 0
    spent: float = 0.0
    not_recorded: int = 0
    late: int = 0
    cells: set[str] = field(default_factory=set)
    cells_watched: int = 0


class StepRecord:
    """One step of one process.

    Args:
        config: the configuration.
        step: the step's number.
        place: where this process writes.
        selection: what is recorded.
        pool: writes tensor files; None where no values are kept.
    """

    def __init__(self, config: Config, step: int, place: Place, selection: Selection, pool: TensorPool | None) -> None:
        self.config = config
        self.step = step
        self.step_directory = layout.step_dir(config.dump_path, step)
        self.directory = place.directory(place.root, step)
        self.selection = selection
        self.counters = Counters()
        self.tally = Tally()
        self.closed = False
        self._pool = pool
        self._pool_before = (pool.bytes_written, Counter(pool.problems)) if pool is not None else (0, Counter[str]())
        self.structure_only = config.task == "structure"
        remove_tensor_files(os.path.join(self.directory, layout.TENSORS))
        writer_class = StructureWriter if self.structure_only else StepWriter
        self.writer = writer_class(
            self.directory,
            task=config.task,
            level=config.level,
            framework="mindspore",
            extra_info=config.extra_info,
            tensors=pool is not None,
            lazy=pool is None,
            shown_as=place.directory(config.dump_path, step),
        )
        self.writer.meta.update(environment(step, place.rank))
        files = TensorFiles(os.path.join(self.directory, layout.TENSORS), pool) if pool is not None else None
        self.encoder = Encoder(
            files.save if files is not None else None, self.report, config.section.summary_mode == "md5", self.writer.note_unread
        )
        self.keeps_construct = config.level != "L1"
        self.gradients = GradientObservers(self)
        self.parameter_gradients = ParameterGradients(self)
        self._told: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def saves(self, name: str) -> bool:
        """Whether an entry's tensors get files."""
        return self._pool is not None and (self.config.task == "tensor" or self.selection.saves_tensors(name))

    def add(self, name: str, data: dict[str, Any], done: bool) -> Entry:
        """Put an entry into the dump."""
        self.tally.calls += 1
        return self.writer.add(name, data, done)

    def report(self, entry: str, reason: str) -> None:
        """Something could not be recorded: it is counted, and its reason goes to dump_error_info.log (once for each text)."""
        self.tally.not_recorded += 1
        try:
            why = reason[found.end() :] if (found := _PLACE.match(reason)) else reason
            if len(self._reasons) < 1000 or why in self._reasons:
                self._reasons[why] += 1
            line = f"{entry}: {reason}"
            if len(self._told) < 10_000 or line in self._told:
                self._told[line] += 1
                if self._told[line] == 1:
                    self.writer.error(line)
        except Exception as caught:
            let_through(caught)  # an error in telling of an error has nobody left to tell; it is counted

    def close(self, late: int) -> None:
        """End the step: hooks off, files complete, closing line said.

        Args:
            late: calls of earlier steps whose backward pass came too late, not yet told.
        """
        began = time.perf_counter()
        self.closed = True
        self._whatever_happens(self.gradients.close)
        self._whatever_happens(self.parameter_gradients.close)
        tally, size = self.tally, 0
        if self._pool is not None:
            self._whatever_happens(self._pool.drain)
        lost, reasons = tally.not_recorded, self._reasons
        if self._pool is not None:
            bytes_before, problems_before = self._pool_before
            size += self._pool.bytes_written - bytes_before
            of_files = Counter(self._pool.problems) - problems_before
            lost += of_files.total()
            reasons += of_files
        called, apis = self.counters.totals("Cell.")
        self.writer.meta.update(
            recorded={"tensors": tally.tensors, "calls": tally.calls, "apis": tally.apis, "modules": len(tally.cells)},
            seen={"apis": apis, "modules": called},
            hooked_modules=tally.cells_watched,
            milliseconds_added=round(tally.spent * 1e3, 3),
            not_recorded=dict(self._told.most_common(_MAX_REASONS)),
        )
        report = self.writer.close()
        tally.spent += time.perf_counter() - began
        text = closing_line(
            self.step,
            tensors=tally.tensors,
            calls=tally.calls,
            modules=(len(tally.cells), tally.cells_watched) if tally.cells_watched else None,
            apis=(tally.apis, apis) if self.config.level != "L0" else None,
            size=size + report.bytes_written,
            seconds=tally.spent,
            lost=lost + sum(report.problems.values()),
            reasons=reasons + Counter(report.problems),
            where=layout.ERRORS,
            late=late,
        )
        if tally.calls:
            logger.info(text)
        else:
            logger.warning(f"{text}: nothing was recorded between start() and step(){self._why_nothing()}")
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
        if self.config.level == "L0" and not self.tally.cells_watched:
            return ": the model holds no cells (a model itself is not recorded, only what is inside it)"
        if self.config.level != "L1" and self.tally.cells_watched:
            return ": no cell of the model given to start() was called"
        return ""


_known: dict[str, Any] = {}


def environment(step: int, rank: int | None) -> dict[str, Any]:
    """What meta.json says when the step begins."""
    if not _known:
        _known.update(
            msprobe=msprobe.__version__,
            kernels=numerics.HAVE_KERNELS,
            python=platform.python_version(),
            mindspore=mindspore.__version__,
            numpy=np.__version__,
            platform=platform.platform(),
            device=str(mindspore.get_context("device_target")),
        )
    return {
        "step": step,
        "rank": rank,
        "pid": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(sys.argv),
        **_known,
        "deterministic": str(mindspore.get_context("deterministic")),
        "mindspore_seed": mindspore.get_seed(),
    }


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
