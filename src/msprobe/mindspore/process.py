"""Which rank this process is, what its device can, and waiting for what still runs."""

from __future__ import annotations

from msprobe.contain import let_through
from msprobe.mindspore.mindspore_internals import synchronize


def current_rank() -> int | None:
    """The rank in the world group, None where communication was not initialised (MindSpore's get_rank says 0 there)."""
    try:
        from mindspore.communication import GlobalComm, get_rank

        return int(get_rank()) if GlobalComm.INITED else None
    except Exception as error:
        let_through(error)
        return None


def device_target() -> str:
    """`CPU`, `GPU` or `Ascend`."""
    import mindspore

    return str(mindspore.get_context("device_target"))


def has_python_ops() -> bool:
    """Whether a graph of this device can call Python."""
    return device_target() == "CPU"


def has_dump_ops() -> bool:
    """Whether a graph of this device can have MindSpore write values to files (TensorDump)."""
    return device_target() == "Ascend"


def wait_for_device() -> Exception | None:
    """Return when everything that was started has run; gives what an operation of the user's raised meanwhile."""
    try:
        synchronize()
    except Exception as error:
        let_through(error)
        return error
    return None
