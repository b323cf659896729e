"""Communication between ranks: most of its functions give nothing, and write into their arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msprobe.mindspore.dump.values import RUNNING

if TYPE_CHECKING:
    from msprobe.mindspore.dump.recorder import Recorder

PREFIXES = ("MintDistributed.", "Distributed.")
_ONLY_WRITTEN = {
    "all_gather": (0, "tensor_list"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "all_gather_into_tensor_uneven": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
    "gather": (1, "gather_list"),
    "irecv": (0, "tensor"),
    "recv": (0, "tensor"),
    "reduce_scatter": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "reduce_scatter_tensor_uneven": (0, "output"),
    "scatter": (0, "tensor"),
}
"""Function of mint.distributed -> position and name of the argument that holds nothing yet when it begins."""


def in_place_of(recorder: Recorder, full: str, function: Callable[..., Any]) -> Any:
    """What stands in the place of a function while recording is on.

    Of mint.distributed the output is what the arguments are after the call, as it is with PyTorch, and null stands in the input for a
    buffer that is only written to. What still runs is not looked at: nobody knows whether its values are there yet.

    Args:
        recorder: records the calls.
        full: `MintDistributed.all_reduce`.
        function: the user's.
    """
    name = full.rsplit(".", 1)[1]
    writes = full.startswith("Mint")
    position, argument = _ONLY_WRITTEN.get(name, (-1, "")) if writes else (-1, "")

    def call(*args: Any, **kwargs: Any) -> Any:
        given: list[Any] = []

        def run(*_: Any, **__: Any) -> Any:
            result = function(*args, **kwargs)
            given.append(result)
            if _runs(result):
                return None if name == "isend" else RUNNING  # what is sent stays what it is
            return (*args, *kwargs.values()) if writes else result

        read = tuple(None if place == position else value for place, value in enumerate(args))
        read_by_name = {key: None if key == argument else value for key, value in kwargs.items()}
        recorder.api(full, run, read, read_by_name, gradients=False)
        return given[0]

    return functools.update_wrapper(call, function, [name for name in functools.WRAPPER_ASSIGNMENTS if hasattr(function, name)])


def _runs(result: Any) -> bool:
    """Whether there is a handle to wait for in what a function gave."""
    parts = result if isinstance(result, tuple) else (result,)
    return any(callable(getattr(part, "wait", None)) for part in parts)
