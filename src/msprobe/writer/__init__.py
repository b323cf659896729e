"""Writing the files of a step so that they survive whatever ends the process."""

from msprobe.writer.entry import CloseReport, Entry
from msprobe.writer.flusher import flush_all
from msprobe.writer.native_pool import new_pool
from msprobe.writer.step_writer import StepWriter
from msprobe.writer.tensor_pool import TensorPool

__all__ = ["CloseReport", "Entry", "StepWriter", "TensorPool", "flush_all", "new_pool"]
