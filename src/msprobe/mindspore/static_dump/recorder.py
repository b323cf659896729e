"""What the taps of a compiled graph call: values become entries of dump.json, under the numbers of their calls.

Everything here runs while the graph runs, in whatever threads MindSpore calls from.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.mindspore.dump.values import Array

if TYPE_CHECKING:
    from msprobe.mindspore.static_dump.step import StaticStep


UNNUMBERED = -2
"""In the place of a call's number, for gradients of parameters."""


class Spot(NamedTuple):
    """Where a value belongs: of which cell, `forward`, `backward` or `parameters_grad`, `input` and so on, `0.key`."""

    base: str
    direction: str
    role: str
    path: str


class Recorder:
    """The one of a process; a graph that was compiled once calls it for ever."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.step: StaticStep | None = None
        self.on = False
        """Calls that begin now are recorded."""
        self.cells: list[str] = []
        """Those that have taps, in the order of the model."""
        self.forward_run: list[str] = []
        """Cells in the order in which their calls end in a run of the graph, each as often as it is called; as far as that is known."""
        self.backward_run: list[str] = []
        """The same of the backward part."""
        self._paths: dict[tuple[str, str], list[tuple[int, ...]]] = {}
        """Of the tensors that a cell takes in (`output`: of its backward entry) and gives out (`input`), as MindSpore came across them."""
        self.constants: dict[Spot, Any] = {}
        self.unread: set[Spot] = set()
        """Where values belong that cannot be recorded."""
        self._told: set[str] = set()

    def begin_model(self) -> None:
        """Taps are put into a model: nothing is known of it yet, and what is known of another one does not hold for it."""
        with self._lock:
            for known in (self.cells, self.forward_run, self.backward_run, self._paths, self.constants, self.unread):
                known.clear()

    def number(self, base: str) -> int:
        """A call begins: its number in the step, -1 while nothing is recorded. Never raises."""
        with self._lock:
            step = self.step
            if step is None or not self.on:
                return -1
            try:
                return step.begin(base)
            except Exception as error:
                let_through(error)
                self.failed(Spot(base, "forward", "", ""), error)
                return -1

    def take(self, spot: Spot, number: int, dtype: str, array: Array) -> None:
        """A value has come."""
        with self._lock:
            if self.step is not None and number != -1:
                self.step.take(spot, number, dtype, array)

    def constant(self, spot: Spot, value: Any) -> int:
        """While MindSpore compiles: a value that is no tensor."""
        if value is None or isinstance(value, bool | int | float | str):
            self.constants[spot] = None if value is None else {"type": type(value).__name__, "value": value}
        return 0

    def index(self, base: str, role: str, path: str) -> int:
        """While MindSpore compiles: the number of a tensor's path, `0.1.2`."""
        numbers = tuple(map(int, path.split(".")))
        known = self._paths.setdefault((base, role), [])
        if numbers not in known:
            known.append(numbers)
        return known.index(numbers)

    def has_gradient(self, base: str, role: str, path: str, dtype: str) -> bool:
        """While MindSpore compiles: whether a tensor of a dtype (`Float32`) has a gradient; it has a place among the others in any case."""
        self.index(base, role, path)
        return dtype.startswith(("Float", "BFloat", "Complex"))

    def position(self, spot: Spot, index: int) -> str:
        """Which of the tensors on this side of the cell one is, in order."""
        paths = self._paths[spot.base, spot.role]
        return str(sum(path < paths[index] for path in paths))

    def tensors(self, base: str, role: str) -> int:
        """How many tensors there are on one side of a cell."""
        return len(self._paths.get((base, role), ()))

    def too_deep(self, spot: Spot) -> int:
        """While MindSpore compiles: a value lies inside of more containers than are looked into."""
        self.tell(f"{spot.base}.{spot.direction}: {spot.role} {spot.path} is nested deeper than is recorded")
        return 0

    def unshaped(self, spot: Spot) -> int:
        """While MindSpore compiles: a value's shape is known only when the graph runs, and a graph hands no such value to Python."""
        self.unread.add(spot)
        self.tell(
            "values whose shape is known only when the graph runs (set_inputs, None in a shape) are not recorded, nor are their gradients"
        )
        return 0

    def tell(self, text: str) -> None:
        """Warn once of each thing."""
        if text not in self._told:
            self._told.add(text)
            logger.warning(text)

    def failed(self, spot: Spot, error: Exception) -> None:
        """Something of ours went wrong: it is told once, and the graph goes on."""
        step = self.step
        if step is not None:
            step.report(f"{spot.base}.{spot.direction}", f"{spot.role} {spot.path}: could not be recorded: {error!r}")
        else:
            self.tell(f"{spot.base}: values cannot be recorded: {error!r}")


RECORDER = Recorder()
