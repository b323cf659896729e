"""One step of a compiled graph: dump.json and construct.json as in dynamic collection, from what the taps hand over."""

from __future__ import annotations

import time
from typing import Any

from msprobe.config import Config
from msprobe.mindspore.dump.meta import environment
from msprobe.mindspore.dump.tensor_files import TensorFiles
from msprobe.mindspore.dump.values import Array, Encoder, Record, Side
from msprobe.mindspore.static_dump.ordering import in_order
from msprobe.mindspore.static_dump.recorder import RECORDER, Spot
from msprobe.recording import meta
from msprobe.recording.counters import Counters
from msprobe.recording.place import Place
from msprobe.recording.selection import Selection
from msprobe.recording.step import Step
from msprobe.writer import StepWriter, TensorPool
from msprobe.writer.entry import Entry

_ITEMS = {"max": "Max", "min": "Min", "mean": "Mean", "l2norm": "Norm"}
_UNSHAPED = "a tensor whose shape is known only when the graph runs"
_KEYS = {("forward", "input"): "input_args", ("forward", "kwargs"): "input_kwargs"}


class StaticStep(Step):
    """One step of one process.

    Args:
        config: level L0.
        step: the step's number.
        place: where this process writes.
        selection: what is recorded.
        pool: writes tensor files; None where no values are kept.
    """

    def __init__(self, config: Config, step: int, place: Place, selection: Selection, pool: TensorPool | None) -> None:
        super().__init__(config, step, place, pool)
        made_with = environment(step, place.rank)
        self.selection = selection
        self._all_saved = config.task == "tensor"
        self.writer = StepWriter(self.directory, framework="mindspore", extra_info=config.extra_info, **self.settings)
        self.writer.meta.update(made_with, static_graph=True)
        files = TensorFiles(self.tensor_directory, pool).save if pool is not None else None
        self._encoder = Encoder(files, self.report, False, self.writer.note_unread)
        mode = config.section.summary_mode
        self._wanted = {_ITEMS[item] for item in mode if item in _ITEMS} if isinstance(mode, tuple) else set(_ITEMS.values())
        self._calls = Counters()
        self._parameter_passes: dict[Spot, tuple[int, int]] = {}
        self._begun = 0
        """How many calls have begun, of all cells."""
        self._calls_before: dict[Spot, tuple[int, int]] = {}
        """Of a parameter's cell, and of all of them, when its latest gradient came."""
        self._entries: dict[str, Entry | None] = {}

    def begin(self, base: str) -> int:
        """A call of a cell begins; gives its number."""
        self._begun += 1
        return self._calls.take(base)

    def take(self, spot: Spot, number: int, dtype: str, array: Array) -> None:
        """A value has come; it is read before this returns."""
        began = time.perf_counter()
        again = False
        if spot.direction == "parameters_grad":
            if self._is_of_another_branch(spot, array):
                return
            number, again = self._backward_pass(spot)
        name = f"{spot.base}.{spot.direction}.{number}"
        entry = self._entry(name, spot, number)
        sides = self.selection.sides
        wanted = sides.output if spot.role in ("output", "parameters") else sides.input
        if entry is None or not (wanted or spot.direction == "parameters_grad"):
            return
        if again:
            self._entries[name] = self._entries.pop(name)  # behind what has come meanwhile
            if self._pool is not None:
                self._pool.drain()  # it has a file, and this one has to be the later one
        path = tuple(spot.path.split("."))
        side = Side(name, spot.role, self._pool is not None and (self._all_saved or self.selection.saves_tensors(name)))
        head: dict[str, Any] = {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(array.shape)}
        record = self._encoder.array(array, head, path, side)
        for key in set(_ITEMS.values()) - self._wanted:
            record.pop(key, None)
        self._put(entry, spot, record)
        self.tally.tensors += not again
        self.tally.spent += time.perf_counter() - began

    def _is_of_another_branch(self, spot: Spot, array: Array) -> bool:
        """Whether this is the zero that MindSpore has for a parameter of a cell which this run of the graph has not called. In PyNative
        there is none, and it would stand in the place of what an earlier run of the step has brought."""
        calls = self._calls.peek(spot.base), self._begun
        of_cell, of_all = self._calls_before.get(spot, (0, -1))
        self._calls_before[spot] = calls
        return calls[0] == of_cell and calls[1] > of_all and not array.any()

    def _backward_pass(self, spot: Spot) -> tuple[int, bool]:
        """Which backward pass a parameter's gradient belongs to, and whether it has had one from it.

        Where a parameter is used in several parts of a graph (branches, loops, recomputed cells), MindSpore calls the hook with what is
        added up so far, more than once: the last one is the gradient. A pass of its own follows a further run of the graph.
        """
        calls, of_one_run = self._calls.peek(spot.base), RECORDER.forward_run.count(spot.base)
        runs = -(-calls // of_one_run) if of_one_run else calls  # a part of the gradient may come before the last call of its run has begun
        number, before = self._parameter_passes.get(spot, (-1, -1))
        again = runs == before
        number += not again
        self._parameter_passes[spot] = (number, runs)
        return number, again

    def _entry(self, name: str, spot: Spot, number: int) -> Entry | None:
        """The entry of a call; None where it is not selected."""
        if name in self._entries:
            return self._entries[name]
        sides = self.selection.sides
        wanted = sides.forward if spot.direction == "forward" else sides.backward
        entry = None
        if wanted and self.selection.enters(name):
            entry = self.writer.add(name, {}, False)
            if spot.direction == "forward":
                entry.data.update(self._constants(spot.base))
                self._tell_unread(name, spot.base)
            elif spot.direction == "backward":
                for role, side in (("input", sides.input), ("output", sides.output)):
                    if side:
                        entry.data[role] = [None] * RECORDER.tensors(spot.base, role)
        self._entries[name] = entry
        return entry

    def _constants(self, base: str) -> dict[str, Any]:
        """The arguments and results that are no tensors: known since MindSpore compiled."""
        sides = self.selection.sides
        data: dict[str, Any] = {}
        if sides.input:
            data.update(input_args=[], input_kwargs={})
        if sides.output:
            data.update(output=[], parameters={})
        for spot, record in [*RECORDER.constants.items(), *((spot, None) for spot in RECORDER.unread)]:
            if spot.base == base and _KEYS.get((spot.direction, spot.role), spot.role) in data:
                _place(data, spot, None if record is None else dict(record))
        return data

    def _tell_unread(self, name: str, base: str) -> None:
        for spot in [spot for spot in list(RECORDER.unread) if spot.base == base]:
            self.report(name, f"{spot.role} {spot.path}: {_UNSHAPED}")
            self.writer.note_unread((name, spot.role, tuple(spot.path.split(".")), _UNSHAPED))

    def _put(self, entry: Entry, spot: Spot, record: Record) -> None:
        _place(entry.data, spot, record)

    def close(self) -> None:
        """End the step: files complete, closing line said."""
        began = time.perf_counter()
        tally, hooked = self.tally, len(RECORDER.cells)
        recorded = [entry for entry in self._entries.values() if entry is not None]
        tally.calls = len(recorded)
        tally.modules = {entry.name.rsplit(".", 2)[0] for entry in recorded}
        tally.modules_hooked = hooked
        self.whatever_happens(lambda: self._add_calls(recorded))
        self.whatever_happens(lambda: self._put_in_order(recorded))
        self.conclude(
            began,
            lambda: meta.counts(tally, self.unrecorded.lines, *self._calls.totals("Cell.")),
            modules=(len(tally.modules), hooked),
            # where MindSpore has compiled the model without taps there are no cells, and it has been told
            warning=f": nothing was recorded between start() and step(): {self._why_nothing()}" if hooked and not recorded else "",
        )

    def _why_nothing(self) -> str:
        if self._calls.calls(""):
            return '"list", "scope" or "data_mode" selects nothing of what ran'
        return "the graph was compiled before start(), or none of its cells ran"

    def _add_calls(self, recorded: list[Entry]) -> None:
        for entry in recorded:
            base, direction, number = entry.name.rsplit(".", 2)
            if direction != "parameters_grad":
                self.writer.add_call(entry.name, self._parent(base, direction, int(number)))

    def _put_in_order(self, recorded: list[Entry]) -> None:
        """Until now entries were in the order in which their values came."""
        for entry in in_order(recorded, RECORDER.forward_run, RECORDER.backward_run):
            self.writer.add(entry.name, entry.data, True)

    def _parent(self, base: str, direction: str, number: int) -> str | None:
        """The call of the cell around it, where each of its calls makes the same number of calls of this one."""
        path = base.split(".")[1:-1]
        for length in range(len(path) - 1, 0, -1):
            head = f"Cell.{'.'.join(path[:length])}."
            found = next((cell for cell in RECORDER.cells if cell.startswith(head) and "." not in cell[len(head) :]), None)
            if found is not None:
                calls, around = self._calls.peek(base), self._calls.peek(found)
                return f"{found}.{direction}.{number // (calls // around)}" if around and calls and calls % around == 0 else None
        return None


def _place(data: dict[str, Any], spot: Spot, record: Record | None) -> None:
    """Put a record where its spot says: lists grow, `0.k` lies in a dict inside of the first element."""
    parts = spot.path.split(".")
    if spot.direction == "parameters_grad":
        data[parts[0]] = [record]
        return
    key = _KEYS.get((spot.direction, spot.role), spot.role)
    inside: Any = data.setdefault(key, {} if spot.role in ("kwargs", "parameters") else [])
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        value: Any = record if following is None else ([] if following.isdecimal() else {})
        if isinstance(inside, list):
            index = int(part)
            inside.extend([None] * (index + 1 - len(inside)))
            if following is None or inside[index] is None:
                inside[index] = value
            inside = inside[index]
        else:
            if following is None or inside.get(part) is None:
                inside[part] = value
            inside = inside[part]
