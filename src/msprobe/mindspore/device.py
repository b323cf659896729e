"""What the device of this process can do."""

from __future__ import annotations


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
