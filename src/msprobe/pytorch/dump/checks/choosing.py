"""From the configuration to the check of one step, if it asks for one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

from msprobe.config import Config
from msprobe.format import layout
from msprobe.log import logger
from msprobe.pytorch.dump.checks.bench_check import BenchCheck
from msprobe.pytorch.dump.checks.checked_writer import Check
from msprobe.pytorch.dump.checks.earlier_dump import EarlierDump
from msprobe.pytorch.dump.checks.held_tensors import HeldTensors
from msprobe.pytorch.dump.checks.nan_check import EXTRA_INFO, NanCheck, notice
from msprobe.recording.selection import Selection
from msprobe.writer import TensorPool


class Nothing(Selection):
    """Selects no call any more: recording has come to its end in the middle of a step."""

    def __init__(self, before: Selection) -> None:
        super().__init__(sides=before.sides)
        self.everything = False

    def wants_api(self, prefix: str, api: str) -> bool:
        """See `Selection`."""
        return False

    def enters(self, name: str, parent: str | None = None) -> bool:
        """See `Selection`."""
        return False

    def matches(self, name: str, parent: str | None = None) -> bool:
        """See `Selection`."""
        return False

    def ends_inside(self, name: str) -> bool:
        """See `Selection`."""
        return False


def earlier_dump(config: Config, before: EarlierDump | None) -> EarlierDump | None:
    """The dump that the run is compared with, None where it is compared with none; also says what the user has to know of a check.

    Args:
        config: the configuration.
        before: what the run was compared with until now; it stays where its fields have not changed, and so does what it has counted.

    Raises:
        ConfigError: there is no dump at `bench_path`.
    """
    if config.task == "nan_check":
        logger.info(notice())
    if config.section.bench_path is None or config.level not in ("L0", "L1", "mix"):
        return None
    return before if before is not None and before.is_of(config) else EarlierDump(config)


def make_check(
    config: Config,
    step: int,
    rank: int | None,
    directory: str,
    selection: Selection,
    pool: TensorPool | None,
    earlier: EarlierDump | None,
    end: Callable[[], None],
) -> Check | None:
    """The check of one step, None where nothing is checked.

    Args:
        config: the configuration.
        step, rank: of the step and of this process.
        directory: where the step is recorded to.
        selection: of the step; a check may need more sides of a call than are written.
        pool: writes tensor files.
        earlier: from `earlier_dump`.
        end: called when nothing more has to be recorded.
    """
    if earlier is not None and pool is not None:
        held = HeldTensors(os.path.join(directory, layout.TENSORS), pool)
        mode = config.section.summary_mode
        return BenchCheck(
            earlier, earlier.step(step, rank, mode if isinstance(mode, str) else "statistics"), held, end, selection.sides.output
        )
    if config.task == "nan_check":
        keep_input = selection.sides.input
        selection.sides = dataclasses.replace(selection.sides, input=True)
        extra = HeldTensors(os.path.join(directory, EXTRA_INFO), pool) if pool is not None else None
        return NanCheck(extra, selection.saves_tensors, keep_input)
    return None
