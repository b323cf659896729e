"""From the configuration to what makes and what writes the records of one step; decided once, so that what is off costs nothing."""

from __future__ import annotations

from collections.abc import Callable

from msprobe.config import Config
from msprobe.pytorch.dump.checks.checked_writer import CheckedWriter
from msprobe.pytorch.dump.encoder import Encoder, Save
from msprobe.pytorch.dump.staging import HoldingWriter, StagedEncoder, Staging
from msprobe.pytorch.dump.structure import StructureEncoder
from msprobe.pytorch.dump.summaries import OF_MODE
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.writer import StepWriter
from msprobe.writer.structure import StructureWriter


def writer_class(config: Config) -> type[StepWriter]:
    """What writes the JSON of a step."""
    if config.task == "structure":
        return StructureWriter
    return HoldingWriter if config.async_dump else StepWriter


def make_encoder(config: Config, writer: StepWriter, save: Save | None, report: Callable[[str, str], None]) -> Encoder:
    """What makes the records of a step.

    Args:
        config: the configuration.
        writer: of the class that `writer_class` gave.
        save: keeps values; None where none are kept.
        report: called as `report(entry, reason)` for what could not be recorded.
    """
    if config.task == "structure":
        return StructureEncoder()
    mode = config.section.summary_mode
    holds = OF_MODE[mode if isinstance(mode, str) else "statistics"]
    if isinstance(writer, HoldingWriter):
        return StagedEncoder(save if isinstance(save, TensorSaver) else None, report, holds, Staging(writer, report), writer.note_unread)
    if isinstance(writer, CheckedWriter):
        return writer.check.encoder(save, report, holds, writer.check.unread_places, writer.note_unread)
    return Encoder(save, report, holds, md5_last=config.section.bench_path is None, note=writer.note_unread)
