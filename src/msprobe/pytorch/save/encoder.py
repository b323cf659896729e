"""Records of saved values: those of a dump, and where in the structure the tensors lie that have a gradient."""

from __future__ import annotations

import torch

from msprobe.config import Config
from msprobe.pytorch.dump.encoder import Encoder, Path, Record, Side
from msprobe.pytorch.dump.plain_values import class_name
from msprobe.pytorch.dump.staging import HoldingWriter, StagedEncoder, Staging
from msprobe.pytorch.dump.summaries import OF_MODE
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.recording.unrecorded import Unrecorded
from msprobe.writer import StepWriter


class SavedSide(Side):
    """One value while it is being recorded; `places` says where in it the tensors of `leaves` lie."""

    __slots__ = ("places",)

    def __init__(self, entry: str, save: bool) -> None:
        super().__init__(entry, "", save)
        self.places: list[Path] = []


class _Noting(Encoder):
    """Notes the place of each tensor that requires grad, and tells of what has no record."""

    def tensor(self, tensor: torch.Tensor, path: Path, side: Side) -> Record:
        """The record of a tensor of torch's own two classes."""
        record = super().tensor(tensor, path, side)
        _note(path, side)
        return record

    def _no_record(self, kind: type, path: Path, side: Side) -> Record:
        """Nobody is to take its null for a None."""
        self._report(side.entry, f" {'.'.join(path)}: a {class_name(kind)} is no kind of value that is recorded")
        return super()._no_record(kind, path, side)

    def _unusual(self, tensor: torch.Tensor, path: Path, side: Side) -> Record:
        record = super()._unusual(tensor, path, side)
        _note(path, side)
        return record


def _note(path: Path, side: Side) -> None:
    if isinstance(side, SavedSide) and len(side.places) < len(side.leaves):
        side.places.append(path)


class SavedEncoder(_Noting, Encoder):
    """Reads values at once."""


class StagedSavedEncoder(_Noting, StagedEncoder):
    """Waits for no device before the step ends (async_dump)."""


def make_encoder(config: Config, writer: StepWriter, saver: TensorSaver | None, unrecorded: Unrecorded) -> Encoder:
    """What makes the records of a step; like `dump.kinds_of_step.make_encoder`."""
    mode = config.section.summary_mode
    holds = OF_MODE[mode if isinstance(mode, str) else "statistics"]
    if isinstance(writer, HoldingWriter):
        return StagedSavedEncoder(saver, unrecorded.report, holds, Staging(writer, unrecorded.report), writer.note_unread)
    return SavedEncoder(saver, unrecorded.report, holds, md5_last=True, note=writer.note_unread)
