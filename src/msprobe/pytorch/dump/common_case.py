"""The common case of recording in C (`_hot.c`): everything is recorded, as statistics or checksums, with the values of all
tensors or of none.

Every other case, and an installation without a compiler, is served by the classes in Python, which say what the C does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from msprobe.contain import let_through
from msprobe.format import dtypes, layout
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_call import ApiCall, backward_of
from msprobe.pytorch.dump.distributed.deferred import Deferred
from msprobe.pytorch.dump.encoder import _CLASSES, Encoder, Side
from msprobe.pytorch.dump.graph_walk import edges_of_all
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.recording.selection import Selection
from msprobe.recording.stacks import Anchor
from msprobe.writer import StepWriter

if TYPE_CHECKING:
    from msprobe.pytorch.dump.api_dump.api_table import Api, ApiTable
    from msprobe.pytorch.dump.module_dump.hooks import After, Before
    from msprobe.pytorch.dump.module_recorder import ModuleRecorder
    from msprobe.pytorch.dump.recorder import Recorder
    from msprobe.pytorch.dump.step_record import StepRecord

hot: Any = None
"""The extension module; None where there is none."""
DECLINED = object()
"""What the C gives where it has done nothing, and Python has to."""


def is_common(step: StepRecord) -> bool:
    """Whether a step is such that the C can record it."""
    selection = step.selection
    sides = selection.sides
    return (
        hot is not None
        and step.check is None
        and (step.saver is None or (type(step.saver) is TensorSaver and step.save_all))
        and type(step.encoder) is Encoder
        and type(step.writer) is StepWriter
        and type(selection) is Selection
        and selection.everything
        and sides.forward
        and sides.backward
        and sides.input
        and sides.output
    )


def api_calls(recorder: Recorder, table: ApiTable, ambiguous: frozenset[str]) -> Callable[..., Any] | None:
    """What records the calls that a function mode sees; None where the step is no common case.

    Args:
        recorder: records into its step.
        table: the watched functions.
        ambiguous: names of functions that may stand for another one.
    """
    step = recorder.step
    if step is None or not is_common(step):
        return None
    calls = hot.api_calls(
        recorder,
        step,
        recorder.state,
        recorder.stacks,
        table.by_function,
        table.by_operator,
        ambiguous,
        step.writer,
        step.observers,
        step.counters.by_name,
        step.encoder,
        step.encoder.table,
        step.failed,
        partial(_kind_of, step.selection),
        edges_of_all,
        Deferred,
        step.config.extra_info,
        step.keeps_construct,
    )
    step.counted_in_c.append(calls.settle)
    call: Callable[..., Any] = calls.call
    return call


def module_hooks(recorder: ModuleRecorder) -> tuple[Before, After]:
    """What hooks on modules call when a forward begins and when it ends."""
    if hot is None:
        return recorder.module_before, recorder.module_after
    before, after = hot.module_hooks(recorder)
    return before, after


def module_calls(recorder: ModuleRecorder) -> Any:
    """What records the modules that hooks tell of, while it stands at the recorder; None where the step is no common case."""
    step = recorder.step
    if step is None or not is_common(step):
        return None
    calls = hot.module_calls(
        recorder,
        step,
        recorder.state,
        recorder.stacks,
        step.writer,
        step.observers,
        step.parameter_gradients,
        step.counters.by_name,
        step.tally.modules,
        step.encoder,
        step.encoder.table,
        edges_of_all,
        step.config.extra_info,
        step.keeps_construct,
    )
    step.counted_in_c.append(calls.settle)
    return calls


_DECLINE, _WANTED, _LEFT_OUT = range(3)


def _kind_of(selection: Selection, api: Api) -> tuple[int, str, frozenset[int], tuple[str, ...] | None]:
    """What the C needs to know of an Api."""
    if api.prefix == "Aten" or api.ignored is not None or api.written is not None:
        kind = _DECLINE
    else:
        kind = _WANTED if selection.wants_api(api.prefix, api.name) else _LEFT_OUT
    return kind, api.full, api.hidden, api.parameters


def _contain(step: StepRecord, entry: str, what: str, error: Exception) -> None:
    """An error of ours in C: told of like any other, or let through where a signal handler of the user's raised it."""
    let_through(error)
    try:
        step.report(entry, f"{what}: {error!r}")
    except Exception as caught:
        let_through(caught)
        step.unrecorded.count += 1


def _not_kept(encoder: Encoder, entry: str, role: str, name: str | int, error: Exception) -> None:
    """Values that could not be kept, as `Encoder` tells of them."""
    let_through(error)
    encoder.not_kept(entry, role, str.__str__(name) if isinstance(name, str) else str(name), error)


try:
    from msprobe.pytorch.dump import _hot

    _hot.set_up(
        torch_internals.NoTorchFunction,
        torch_internals.mode_depth,
        torch_internals.graph_task,
        torch_internals.sequence_number,
        torch.is_grad_enabled,
        _CLASSES,
        Side,
        ApiCall,
        backward_of,
        _contain,
        DECLINED,
        Anchor,
        layout.safe_file_name,
        dtypes.SPELLING,
        _not_kept,
    )
    hot = _hot
except ImportError:  # no compiler when msprobe was installed
    pass
