"""One step of a compiled graph: dump.json and construct.json as in dynamic collection, from what the taps hand over."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

from msprobe.config import Config
from msprobe.format import layout
from msprobe.log import logger
from msprobe.mindspore.dump.meta import environment
from msprobe.mindspore.dump.tensor_files import TensorFiles
from msprobe.mindspore.dump.values import Array, Encoder, Record, Side
from msprobe.mindspore.static_dump.ordering import in_order
from msprobe.mindspore.static_dump.recorder import RECORDER, Spot, per_call
from msprobe.recording.closing_line import closing_line
from msprobe.recording.place import Place
from msprobe.recording.selection import Selection
from msprobe.recording.step import remove_tensor_files
from msprobe.writer import StepWriter, TensorPool
from msprobe.writer.entry import Entry

_ITEMS = {"max": "Max", "min": "Min", "mean": "Mean", "l2norm": "Norm"}
_KEYS = {("forward", "input"): "input_args", ("forward", "kwargs"): "input_kwargs"}


class StaticStep:
    """One step of one process.

    Args:
        config: level L0.
        step: the step's number.
        place: where this process writes.
        selection: what is recorded.
        pool: writes tensor files; None where no values are kept.
    """

    def __init__(self, config: Config, step: int, place: Place, selection: Selection, pool: TensorPool | None) -> None:
        self.step = step
        self.selection = selection
        self.directory = place.directory(place.root, step)
        self._step_directory = layout.step_dir(config.dump_path, step)
        self._pool = pool
        self._all_saved = config.task == "tensor"
        tensors = os.path.join(self.directory, layout.TENSORS)
        remove_tensor_files(tensors)
        self.writer = StepWriter(
            self.directory,
            task=config.task,
            level=config.level,
            framework="mindspore",
            extra_info=config.extra_info,
            tensors=pool is not None,
            lazy=pool is None,
            shown_as=place.directory(config.dump_path, step),
        )
        self.writer.meta.update(environment(step, place.rank), static_graph=True)
        files = TensorFiles(tensors, pool).save if pool is not None else None
        self._encoder = Encoder(files, self.report, False, self.writer.note_unread)
        mode = config.section.summary_mode
        self._wanted = {_ITEMS[item] for item in mode if item in _ITEMS} if isinstance(mode, tuple) else set(_ITEMS.values())
        self._calls: Counter[str] = Counter()
        self._parameter_passes: dict[Spot, tuple[int, int]] = {}
        self._entries: dict[str, Entry | None] = {}
        self._reasons: Counter[str] = Counter()
        self._tensors = 0
        self._spent = 0.0

    def begin(self, base: str) -> int:
        """A call of a cell begins; gives its number."""
        number = self._calls[base]
        self._calls[base] += 1
        return number

    def take(self, spot: Spot, number: int, dtype: str, array: Array) -> None:
        """A value has come; it is read before this returns."""
        began = time.perf_counter()
        again = False
        if spot.direction == "parameters_grad":
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
        self._tensors += not again
        self._spent += time.perf_counter() - began

    def _backward_pass(self, spot: Spot) -> tuple[int, bool]:
        """Which backward pass a parameter's gradient belongs to, and whether it has had one from it.

        Where a parameter is used in several parts of a graph (branches, loops, recomputed cells), MindSpore calls the hook with what is
        added up so far, more than once: the last one is the gradient. A pass of its own follows further calls of the cell.
        """
        calls = self._calls[spot.base]
        number, before = self._parameter_passes.get(spot, (-1, -1))
        again = calls == before
        number += not again
        self._parameter_passes[spot] = (number, calls)
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
        for spot, record in list(RECORDER.constants.items()):
            if spot.base == base and _KEYS.get((spot.direction, spot.role), spot.role) in data:
                _place(data, spot, dict(record))
        return data

    def _put(self, entry: Entry, spot: Spot, record: Record) -> None:
        _place(entry.data, spot, record)

    def report(self, entry: str, reason: str) -> None:
        """Something could not be recorded: it is counted, and told once."""
        self._reasons[reason] += 1
        if self._reasons[reason] == 1:
            self.writer.error(f"{entry}: {reason}")

    def close(self) -> None:
        """End the step: files complete, closing line said."""
        began = time.perf_counter()
        recorded = [name for name, entry in self._entries.items() if entry is not None]
        for name in recorded:
            base, direction, number = name.rsplit(".", 2)
            if direction != "parameters_grad":
                self.writer.add_call(name, self._parent(base, direction, int(number)))
        kept = [entry for entry in self._entries.values() if entry is not None]
        for entry in in_order(kept, RECORDER.forward_run, RECORDER.backward_run):
            self.writer.add(entry.name, entry.data, True)  # in its place: until now they were in the order in which their values came
        if self._pool is not None:
            self._pool.drain()
        cells = {name.rsplit(".", 2)[0] for name in recorded}
        self.writer.meta.update(
            recorded={"tensors": self._tensors, "calls": len(recorded), "modules": len(cells)},
            hooked_modules=len(RECORDER.cells),
            milliseconds_added=round(self._spent * 1e3, 3),
            not_recorded=dict(self._reasons.most_common(200)),
        )
        report = self.writer.close()
        logger.info(
            closing_line(
                self.step,
                tensors=self._tensors,
                calls=len(recorded),
                modules=(len(cells), len(RECORDER.cells)),
                apis=None,
                size=report.bytes_written,
                seconds=self._spent + time.perf_counter() - began,
                lost=self._reasons.total() + sum(report.problems.values()),
                reasons=self._reasons + Counter(report.problems),
                where=layout.ERRORS,
                late=0,
            )
        )
        if not recorded and RECORDER.cells:
            logger.warning(
                "nothing was recorded: the graph was compiled before start(), or none of its cells ran between start() and step()"
            )
        logger.info(f"{layout.DUMP} is at {self._step_directory}")

    def _parent(self, base: str, direction: str, number: int) -> str | None:
        """The call of the cell around it, where each of its calls makes the same number of calls of this one."""
        path = base.split(".")[1:-1]
        for length in range(len(path) - 1, 0, -1):
            head = f"Cell.{'.'.join(path[:length])}."
            found = next((cell for cell in RECORDER.cells if cell.startswith(head) and "." not in cell[len(head) :]), None)
            if found is not None:
                share = per_call(self._calls, self._calls, base, found)
                return f"{found}.{direction}.{number // share}" if share else None
        return None


def _place(data: dict[str, Any], spot: Spot, record: Record) -> None:
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
