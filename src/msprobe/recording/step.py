"""One step of one process, whatever is recorded in it: its directory, its part of the tensor files, what could not be recorded, its end."""

from __future__ import annotations

import os
import time
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.format.tensor_file import UNFINISHED
from msprobe.log import logger
from msprobe.recording.closing_line import closing_line
from msprobe.recording.late_calls import LateInStep
from msprobe.recording.place import Place
from msprobe.recording.tally import Tally
from msprobe.recording.unrecorded import Unrecorded, of_call
from msprobe.writer import StepWriter, TensorPool


class Step:
    """What every step has. `writer` is set before anything is recorded.

    Args:
        config: the configuration.
        step: the step's number.
        place: where this process writes.
        pool: writes tensor files; None where no values are kept.
        document: `dump.json` or `debug.json`.
        parts: how reasons are written, see `Unrecorded`.
    """

    writer: StepWriter

    def __init__(
        self,
        config: Config,
        step: int,
        place: Place,
        pool: TensorPool | None,
        document: str = layout.DUMP,
        parts: Callable[[str], tuple[str, str]] = of_call,
    ) -> None:
        self.config = config
        self.step = step
        self.step_directory = layout.step_dir(config.dump_path, step)
        self.directory = place.directory(place.root, step)
        self.tensor_directory = os.path.join(self.directory, layout.TENSORS)
        self.tally = Tally()
        self.unrecorded = Unrecorded(_writes_reasons(weakref.ref(self)), parts)
        self.report = self.unrecorded.report
        """`report(entry, reason)`: something could not be recorded; it is counted, and its reason goes to dump_error_info.log, once for
        each text. Not a method of the step: who keeps it does not keep the step, which in each step would be a cycle to be collected."""
        self.late = LateInStep()
        self._document = document
        self._pool = pool
        self._pool_before = (pool.bytes_written, Counter(pool.problems)) if pool is not None else (0, Counter[str]())
        self.settings: dict[str, Any] = {
            "task": config.task,
            "level": config.level,
            "tensors": pool is not None,
            "lazy": pool is None,  # with tensor files the directory is there at once, and so is what makes it a dump
            "shown_as": place.directory(config.dump_path, step),
        }
        """Of the step's writer."""
        self.absent = False
        """Its document could not be written, not even a part of it; known when the step is over."""
        self.is_new = not os.path.lexists(self.directory)
        """Nobody has recorded into this directory before."""
        if not self.is_new:
            remove_tensor_files(self.tensor_directory)

    def _note(self, ask: Callable[[], dict[str, Any]]) -> None:
        self.writer.meta.update(ask())

    def whatever_happens(self, part: Callable[[], None]) -> None:
        """Do a part of ending the step: the files are completed also when it fails."""
        try:
            part()
        except Exception as error:
            let_through(error)
            self.report(f"end of step {self.step}", repr(error))

    def _drain(self) -> int:
        """Wait until the step's tensor files are there, and tell which of them are not; gives their bytes."""
        pool = self._pool
        if pool is None:
            return 0
        bytes_before, problems_before = self._pool_before
        self.whatever_happens(pool.drain)
        problems = Counter(pool.problems) - problems_before
        self.whatever_happens(lambda: self.unrecorded.report_files(problems, pool.failed_files(self.directory)))
        return pool.bytes_written - bytes_before

    def conclude(
        self,
        began: float,
        *facts: Callable[[], dict[str, Any]],
        modules: tuple[int, int] | None = None,
        apis: tuple[int, int] | None = None,
        late: int = 0,
        verb: str = "recorded",
        more: Callable[[], str] = str,
        warning: str = "",
    ) -> None:
        """Complete the files, and say what they hold.

        Args:
            began: when the end of the step began.
            facts: give what meta.json says of the step; asked when all tensor files are there.
            modules, apis, late, verb: see `closing_line`.
            more: gives what stands behind the closing line.
            warning: makes a warning of the closing line, and stands behind it.
        """
        tally, unrecorded = self.tally, self.unrecorded
        size = self._drain()
        for ask in facts:
            self.whatever_happens(partial(self._note, ask))
        report = self.writer.close()
        unrecorded.let_go()
        tally.lost = unrecorded.count + sum(report.problems.values())
        tally.spent += time.perf_counter() - began
        text = closing_line(
            self.step,
            tensors=tally.tensors,
            calls=tally.calls,
            modules=modules,
            apis=apis,
            size=size + report.bytes_written,
            seconds=tally.spent,
            lost=tally.lost,
            reasons=unrecorded.reasons + Counter(report.problems),
            where=layout.ERRORS,
            late=late,
            verb=verb,
        )
        if warning:
            logger.warning(f"{text}{more()}{warning}")
        else:
            logger.info(f"{text}{more()}")
        self.absent = not os.path.exists(os.path.join(self.directory, self._document))
        if report.lost or self.absent:
            tally.lost = max(tally.lost, 1)
        why = "; ".join(report.problems) or "it could not be written"
        if self.absent:
            logger.warning(f"{self._document} of step {self.step} is not there: {why}")
            return  # who reads the line below looks there
        if report.lost:
            logger.warning(f"{self._document} of step {self.step} is not complete: {why}")
        logger.info(f"{self._document} is at {self.step_directory}")


def _writes_reasons(of: weakref.ref[Step]) -> Callable[[str], None]:
    def write(line: str) -> None:
        step = of()
        if step is not None:
            step.writer.error(line)

    return write


def remove_tensor_files(directory: str) -> None:
    """What an earlier run left in a directory that is used again."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if name.endswith((".pt", ".npy")) or (name.startswith(".") and name.endswith(UNFINISHED)):
            try:
                os.unlink(os.path.join(directory, name))
            except OSError:
                pass
