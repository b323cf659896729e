"""The common case of recording in C (`_hot.c`): everything is recorded, as statistics or checksums, and no values are kept.

Every other case, and an installation without a compiler, is served by the classes in Python, which say what the C does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.encoder import _CLASSES, Encoder, Side
from msprobe.recording.selection import Selection
from msprobe.writer import StepWriter
from msprobe.writer.entry import Entry

if TYPE_CHECKING:
    from msprobe.pytorch.dump.step_record import StepRecord

hot: Any = None
"""The extension module; None where there is none."""


def is_common(step: StepRecord) -> bool:
    """Whether a step is such that the C can record it."""
    selection = step.selection
    sides = selection.sides
    return (
        hot is not None
        and step.check is None
        and step.saver is None
        and type(step.encoder) is Encoder
        and type(step.writer) is StepWriter
        and type(selection) is Selection
        and selection.everything
        and sides.forward
        and sides.backward
        and sides.input
        and sides.output
    )


def _contain(step: StepRecord, entry: str, what: str, error: Exception) -> None:
    """An error of ours in C: told of like any other, or let through where a signal handler of the user's raised it."""
    let_through(error)
    try:
        step.report(entry, f"{what}: {error!r}")
    except Exception as caught:
        let_through(caught)
        step.unrecorded.count += 1


try:
    from msprobe.pytorch.dump import _hot
except ImportError:  # no compiler when msprobe was installed
    pass
else:
    _hot.set_up(
        torch_internals.NoTorchFunction,
        torch_internals.mode_depth,
        torch_internals.graph_task,
        torch_internals.sequence_number,
        torch.is_grad_enabled,
        _CLASSES,
        Entry,
        Side,
        _contain,
    )
    hot = _hot
