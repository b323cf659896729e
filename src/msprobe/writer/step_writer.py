"""The files of one step: dump.json, stack.json, construct.json, meta.json, dump_error_info.log."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msprobe.format import layout
from msprobe.log import logger
from msprobe.writer import json_text
from msprobe.writer.flusher import flusher
from msprobe.writer.growing_file import GrowingFile
from msprobe.writer.stack_table import Frames, Stack, StackTable
from msprobe.writer.step_files import StepFiles

# Entries encoded in one call: long enough to cost little each, short enough not to hold the interpreter for more than a millisecond or two.
_BATCH = 512
# Text kept in memory for a disk that does not take it; beyond that it is lost, and counted.
_MAX_WAITING = 256 << 20


class Entry:
    """One entry of dump.json. `data` may be changed until `done` is set to True."""

    __slots__ = ("data", "done", "name")

    def __init__(self, name: str, data: dict[str, Any], done: bool) -> None:
        self.name = name
        self.data = data
        self.done = done


@dataclass(frozen=True)
class CloseReport:
    """What became of a step.

    bytes_written: size of the JSON files. problems: reason -> how often. lost: entries that are in no file (their number is in
    `problems` too).
    """

    bytes_written: int = 0
    problems: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0


class _Void(list[Any]):
    """Takes everything, keeps nothing."""

    def append(self, item: Any) -> None:
        pass


class StepWriter:
    """Writes the JSON of one step's directory so that it survives whatever ends the process, all but the last half second.

    `add`, `add_call`, `add_stack` and `error` only append to a list and may be called from any thread. Nothing here raises for what
    happens on the disk: one warning is logged, and `close` tells what was lost.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        task: str,
        level: str,
        framework: str = "pytorch",
        extra_info: bool = True,
        tensors: bool = False,
    ) -> None:
        given = os.fspath(directory)
        self.directory = os.path.abspath(given)
        self.meta: dict[str, Any] = {}
        self._extra_info = extra_info
        self._entries: list[Entry] = []
        self._calls: list[tuple[str, str | None]] = []
        self._stacks: list[Stack] = []
        self._errors: list[str] = []
        self._pending: list[Entry] = []  # added, not done
        self._committed: set[str] = set()  # names whose text is final
        self._construct: dict[str, str | None] = {}
        self._table = StackTable()
        self._meta_text = ""
        self._unwritten = 0  # entries whose text is final and in no file yet
        self._in_file = 0  # entries in dump.json
        self._lost = 0
        self._problems: Counter[str] = Counter()
        self._warned = False
        self._busy = False
        self._inert = False
        self._report: CloseReport | None = None
        tensor_directory = os.path.join(given, layout.TENSORS) if tensors else None
        head = {"task": task, "level": level, "framework": framework, "dump_data_dir": tensor_directory}
        opening = json_text.document(head, self._problem).removesuffix("\n}") + ',\n "data": {'
        self._dump = GrowingFile(self.directory, layout.DUMP, opening, "}\n}", "\n }\n}")
        self._stack_file = GrowingFile(self.directory, layout.STACK, "{", "}", "\n}")
        self._construct_file = GrowingFile(self.directory, layout.CONSTRUCT, "{", "}", "\n}")
        self._grow = [self._dump, self._stack_file, self._construct_file] if extra_info else [self._dump]
        self._files = StepFiles(self.directory, self._grow, tensors)
        self._is_open = False
        self._guarded(self._open)
        flusher().register(self)

    def add(self, name: str, data: dict[str, Any], done: bool = False) -> Entry:
        """An entry of dump.json, in the order of these calls. A name added again replaces the earlier entry and takes the later place."""
        entry = Entry(name, data, done)
        self._entries.append(entry)
        return entry

    def add_call(self, name: str, parent: str | None) -> None:
        """A line of construct.json."""
        self._calls.append((name, parent))

    def add_stack(self, name: str, frames_key: Hashable, frames: Frames) -> None:
        """A name in stack.json; `frames` is used (called, where it is callable) for the first name with an equal `frames_key` only."""
        self._stacks.append((name, frames_key, frames))

    def error(self, text: str) -> None:
        """A line in dump_error_info.log."""
        self._errors.append(text)

    def flush(self) -> None:
        """Bring the files up to date, now."""
        if not self._inert:
            flusher().run(self.flush_if_dirty)

    def close(self) -> CloseReport:
        """Write everything that was added, done or not, and take the hidden files away. What is added later is dropped."""
        if not self._inert and self._report is None:
            flusher().run(self._close)
        return self._report or CloseReport()

    def flush_if_dirty(self) -> None:
        added = self._entries or self._pending or self._calls or self._stacks or self._errors
        if added or self.meta or self._unwritten or not self._is_open:
            self._guarded(self._flush)

    def settle(self) -> None:
        self._guarded(self._settle)

    def become_inert(self) -> None:
        self._inert = True
        self._swallow()

    def _close(self) -> None:
        if self._report is not None:
            return
        flusher().unregister(self)
        self._guarded(self._finish)
        lost = self._lost + self._unwritten + len(self._pending) + len(self._entries)
        if lost:
            self._problems["entries that could not be written"] = lost
        self._report = CloseReport(self._files.size, dict(self._problems), lost)
        self._swallow()
        self._pending, self._committed, self._construct, self._table = [], set(), {}, StackTable()

    def _swallow(self) -> None:
        self._entries, self._calls, self._stacks, self._errors = _Void(), _Void(), _Void(), _Void()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run `work`; whatever goes wrong is counted and logged once."""
        if self._busy:  # entered again from inside, by a destructor that the garbage collector ran
            return
        self._busy = True
        try:
            try:
                work()
            except FileNotFoundError:
                if not self._is_open:
                    raise
                self._restore()
                work()
        except Exception as failure:
            self._failed(failure)
        finally:
            self._busy = False

    def _open(self) -> None:
        self._files.open()
        self._is_open = True

    def _flush(self) -> None:
        self._bring_up_to_date(GrowingFile.flush)

    def _settle(self) -> None:
        self._bring_up_to_date(GrowingFile.finish)

    def _finish(self) -> None:
        for entry in [*self._pending, *self._entries]:
            entry.done = True
        self._collect()
        if self._table.scattered:
            self._stack_file.replace(self._table.regrouped())
        self._settle()

    def _bring_up_to_date(self, write: Callable[[GrowingFile, str], None]) -> None:
        """Every file gets its turn, also when another one fails; the first failure is raised at the end."""
        if not self._is_open:
            self._open()
        transient = self._collect()
        failures: list[OSError] = []
        for file in self._grow:
            try:
                write(file, transient if file is self._dump else "")
                if file is self._dump:
                    self._in_file += self._unwritten
                    self._unwritten = 0
            except OSError as failure:
                failures.append(failure)
        try:
            self._write_small_files()
        except OSError as failure:
            failures.append(failure)
        if failures:
            raise failures[0]

    def _write_small_files(self) -> None:
        self._files.append_errors(self._errors)
        if self.meta:
            text = json_text.document(self.meta, self._problem)
            if text != self._meta_text:
                self._files.write_meta(text)
                self._meta_text = text

    def _collect(self) -> str:
        """Turn what was added into text that waits in the growing files; returns the text of the entries that are not done."""
        entries = _take(self._entries)
        if entries or self._pending:
            transient = self._collect_entries(entries)
        else:
            transient = ""
        calls, stacks = _take(self._calls), _take(self._stacks)
        if calls and self._extra_info:
            self._collect_calls(calls)
        if stacks and self._extra_info:
            self._stack_file.append(self._table.add(stacks, self._problem))
        return transient

    def _collect_entries(self, entries: list[Entry]) -> str:
        waiting = self._pending = self._pending + entries
        table = {entry.name: entry for entry in waiting}
        if len(table) < len(waiting):
            table = {}
            for entry in waiting:
                table.pop(entry.name, None)
                table[entry.name] = entry
        again = self._committed.intersection([entry.name for entry in entries])
        if again:
            self._withdraw(again)
        done: dict[str, Any] = {}
        pending: list[Entry] = []
        for name, entry in table.items():
            if entry.done:
                done[name] = entry.data
            else:
                pending.append(entry)
        self._pending = pending
        self._commit(done)
        return json_text.members({entry.name: entry.data for entry in pending}, 2, self._problem)

    def _commit(self, done: dict[str, Any]) -> None:
        if len(done) <= _BATCH:
            self._dump.append(json_text.members(done, 2, self._problem))
        else:
            items = list(done.items())
            for first in range(0, len(items), _BATCH):
                self._dump.append(json_text.members(dict(items[first : first + _BATCH]), 2, self._problem))
        self._committed.update(done)
        self._unwritten += len(done)

    def _withdraw(self, names: set[str]) -> None:
        """Take entries out of dump.json whose names were added again; costs a rewrite."""
        data = json_text.parse(self._dump.text())["data"]
        kept = {name: value for name, value in data.items() if name not in names}
        self._dump.replace(json_text.members(kept, 2, self._problem))
        self._committed -= names
        self._in_file = max(0, self._in_file - len(names))

    def _collect_calls(self, calls: list[tuple[str, str | None]]) -> None:
        new = dict(calls)
        if len(new) == len(calls) and self._construct.keys().isdisjoint(new):
            self._construct.update(new)
            self._construct_file.append(json_text.members(new, 1, self._problem))
            return
        for name, parent in calls:
            self._construct.pop(name, None)
            self._construct[name] = parent
        self._construct_file.replace(json_text.members(self._construct, 1, self._problem))

    def _restore(self) -> None:
        """Someone took files away: what was in them is lost, what is in memory is written to new ones."""
        self._warn("or a file in it was removed during the run; it is made again, what was in it is lost")
        self._meta_text = ""
        for file in self._files.restore():
            if file is self._dump:
                self._lost += self._in_file
                self._in_file = 0
            elif file is self._stack_file:
                file.replace(self._table.regrouped())
            else:
                file.replace(json_text.members(self._construct, 1, self._problem))

    def _failed(self, failure: Exception) -> None:
        reason = getattr(failure, "strerror", None) or f"{type(failure).__name__}: {failure}"
        self._problems[f"cannot write: {reason}"] += 1
        self._warn(f"cannot be written ({reason}); the run goes on, what is recorded waits in memory and is tried again")
        if sum(file.waiting for file in self._grow) > _MAX_WAITING:
            self._lost += self._unwritten
            self._unwritten = 0
            for file in self._grow:
                file.clear()

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("%s %s", self.directory, text)

    def _problem(self, reason: str) -> None:
        self._problems[reason] += 1
        self._errors.append(reason)


def _take(items: list[Any]) -> list[Any]:
    """Empty a list that other threads append to. Never swap such a list: an append may have the old one in hand."""
    count = len(items)
    taken = items[:count]
    del items[:count]
    return taken
