"""The files of one step: dump.json (or debug.json), stack.json, construct.json, meta.json, dump_error_info.log."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import Any

from msprobe.contain import let_through
from msprobe.format import layout, unread
from msprobe.log import logger
from msprobe.writer import json_text
from msprobe.writer.entry import CloseReport, Entry, Void
from msprobe.writer.flusher import flusher
from msprobe.writer.growing_file import GrowingFile, Pieces
from msprobe.writer.one_at_a_time import OneAtATime
from msprobe.writer.stack_table import Frames, StackTable
from msprobe.writer.step_files import StepFiles

# Entries encoded in one call: long enough to cost little each, short enough not to hold the interpreter for more than a millisecond or two.
_BATCH = 512
# Finished entries that wait to become text together.
_READY = 24
# Text of finished entries that is written anew at each flush, so that they stay behind an earlier one that is not finished; beyond that
# they overtake it.
_MAX_HELD = 1 << 20
# Text kept in memory for a disk that does not take it; beyond that it is lost, and counted.
_MAX_WAITING = 256 << 20


class StepWriter(OneAtATime):
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
        lazy: bool = False,
        shown_as: str | None = None,
        document: str = layout.DUMP,
    ) -> None:
        """See the class.

        Args:
            directory: of one step of one rank; made if it does not exist.
            task, level, framework: as dump.json says them.
            extra_info: False leaves stack.json and construct.json out.
            tensors: True makes dump_tensor_data.
            shown_as: the directory as `dump_data_dir` in dump.json spells it, where that differs.
            lazy: a new directory and its files are made when they are written for the first time: at most half a second later, or at
                the end of the step. Making them empty first costs more than all of a small step's text.
            document: what dump.json is called.
        """
        super().__init__()
        given = os.fspath(directory)
        self.directory = os.path.abspath(given)
        self.meta: dict[str, Any] = {}
        self._extra_info = extra_info
        self._entries: list[Entry] = []
        # One after another, name and parent; name, key and frames: a tuple for each would be work for the garbage collector.
        self._calls: list[str | None] = []
        self._stacks: list[Any] = []
        self._errors: list[str] = []
        self._unread = unread.Notes()
        self._ready: list[Entry] = []  # finished, not yet text
        self._pending: list[Entry] = []  # added, and not done or behind one that is not
        self._committed: set[str] = set()  # names whose text is final
        self._construct: dict[str, str | None] = {}
        self._table = StackTable()
        self._meta_text = ""
        self._lost = 0
        self._problems: dict[str, int] = {}
        self._warned = False
        self._reason = "the end of the step was cut off"  # unless something else is found
        self._finished = False
        self._inert = False
        self._report: CloseReport | None = None
        tensor_directory = os.path.join(shown_as or given, layout.TENSORS) if tensors else None
        head = {"task": task, "level": level, "framework": framework, "dump_data_dir": tensor_directory}
        opening = json_text.document(head, self._problem).removesuffix("\n}").replace("\n ", "\n  ") + ',\n  "data": {'
        self._dump = GrowingFile(self.directory, document, opening, "}\n}", "\n  }\n}")
        self._stack_file = GrowingFile(self.directory, layout.STACK, "{", "}", "\n}")
        self._construct_file = GrowingFile(self.directory, layout.CONSTRUCT, "{", "}", "\n}")
        self._grow = [self._dump, self._stack_file, self._construct_file] if extra_info else [self._dump]
        self._files = StepFiles(self.directory, self._grow, tensors)
        self._is_open = False
        if not lazy or os.path.lexists(self.directory):
            self._guarded(self._open)
        flusher().register(self)

    def add(self, name: str, data: dict[str, Any], done: bool = False, ordinary: bool = False) -> Entry:
        """An entry of dump.json, in the order of these calls. A name added again replaces the earlier entry and takes the later place.

        Args:
            name: of the entry.
            data: its value.
            done: it is final.
            ordinary: it is known to hold no NaN and no infinite number, which takes less time to write.
        """
        entry = Entry(name, data, False)
        entry.ordinary = ordinary
        if done:
            self.finish(entry)
        self._entries.append(entry)
        return entry

    def finish(self, entry: Entry) -> None:
        """The entry is final: soon it is one piece of text, and its records are no work for the garbage collector."""
        entry.done = True
        ready = self._ready
        ready.append(entry)
        if len(ready) >= _READY:
            self._encode_ready()

    def _encode_ready(self) -> None:
        """Make text of finished entries, some at a time: the first one finds nothing of the encoder in the processor's caches."""
        count = len(self._ready)
        entries = self._ready[:count]
        del self._ready[:count]
        json_text.encode_in_c(entries)
        for entry in entries:
            if entry.data and not entry.text:
                entry.text = json_text.members({entry.name: entry.data}, 2, self._problem, entry.ordinary)
                entry.data = {}

    def add_call(self, name: str, parent: str | None) -> None:
        """A line of construct.json."""
        self._calls.extend((name, parent))

    def add_stack(self, name: str, frames_key: Hashable, frames: Frames) -> None:
        """A name in stack.json; `frames` is used (called, where it is callable) for the first name with an equal `frames_key` only."""
        self._stacks.extend((name, frames_key, frames))

    def error(self, text: str) -> None:
        """A line in dump_error_info.log."""
        self._errors.append(text)

    def note_unread(self, note: unread.Note) -> None:
        """A null in dump.json stands for a value that nobody looked at: meta.json tells of it."""
        self._unread.add(note)

    def flush(self) -> None:
        """Bring the files up to date, now."""
        self.flush_if_dirty()

    def close(self) -> CloseReport:
        """Write everything that was added, done or not, and take the hidden files away. What is added later is dropped."""
        if self._report is None and not self._inert:
            self._guarded(self._finish)
            with self._lock:
                self._end()
        return self._report or CloseReport()

    def flush_if_dirty(self, wait: bool = True) -> None:
        added = self._entries or self._pending or self._calls or self._stacks or self._errors or self._unread.waiting
        if added or self.meta or not self._is_open or any(file.waiting for file in self._grow):
            self._guarded(self._flush, wait)

    def settle(self) -> None:
        self._guarded(self._settle)

    def become_inert(self) -> None:
        self._inert = True
        self._swallow()

    def _end(self) -> None:
        """After the last write: count what did not make it, and let go of the memory."""
        if self._report is not None or self._is_inside():
            return
        flusher().unregister(self)
        lost, late = self._lost + self._dump.waiting_entries, len(self._entries)
        if not self._finished:  # else those that are pending are in the file, as far as they had come
            lost, late = lost + len(self._pending) + late, 0
        for count, reason in ((lost, self._reason), (late, "added by another thread as the step ended")):
            if count:
                self._problems[f"entries of {os.path.basename(self._dump.path)} lost: {reason}"] = count
        for file in self._grow[1:]:
            if file.waiting:
                self._problems[f"{os.path.basename(file.path)} is not complete: {self._reason}"] = 1
        self._report = CloseReport(self._files.size, dict(self._problems), lost + late)
        self._swallow()
        for file in self._grow:
            if file.waiting:
                file.abandon()
            file.let_go()
        self._pending, self._committed, self._construct, self._table = [], set(), {}, StackTable()

    def _swallow(self) -> None:
        self._entries, self._calls, self._stacks, self._errors = Void(), Void(), Void(), Void()
        self._ready = Void()
        self._unread.close()

    def _is_over(self) -> bool:
        return self._inert or self._report is not None

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FileNotFoundError:
            if not self._is_open:
                raise
            self._restore()
            work()

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
        self._contained_notes(lambda: self._unread.keep(self._committed, self.meta))
        if self._table.scattered:
            self._stack_file.replace(self._table.regrouped())
            self._table.scattered = False
        self._settle()
        self._finished = True

    def _bring_up_to_date(self, write: Callable[[GrowingFile, Pieces], None]) -> None:
        """Every file gets its turn, also when another one fails; the first failure is raised at the end."""
        transient = self._collect()
        if not self._is_open:
            if self._appear(transient):
                return
            self._files.make_directories()
            self._is_open = True
        failures: list[OSError] = []
        for file in self._grow:
            try:
                write(file, transient if file is self._dump else ())
            except OSError as failure:
                failures.append(failure)
        try:
            self._write_small_files()
        except OSError as failure:
            failures.append(failure)
        if failures:
            raise failures[0]

    def _appear(self, transient: Pieces) -> bool:
        """The first write of a lazy writer: there is no moment at which the directory holds some of the documents only."""
        made = {os.path.basename(file.path): file.whole(transient if file is self._dump else ()) for file in self._grow}
        documents = {name: content for name, (content, _) in made.items()}
        meta = json_text.document(dict(self.meta), self._problem) if self.meta else ""
        if meta:
            documents[layout.META] = (meta.encode(),)
        if not self._files.appear(documents):
            return False
        self._is_open = True
        for _, advance in made.values():
            advance()
        self._meta_text = meta
        self._write_small_files()
        return True

    def _write_small_files(self) -> None:
        self._files.append_errors(self._errors)
        if self.meta:
            try:
                text = json_text.document(self.meta, self._problem)
            except RuntimeError:  # it was changed meanwhile; the next flush comes
                return
            if text != self._meta_text:
                self._files.write_meta(text)
                self._meta_text = text

    def _collect(self) -> Pieces:
        """Turn what was added into text that waits in the growing files; returns the text of the entries that are not done.

        Other threads append to the lists meanwhile, so they are never swapped for new ones: an append may have the old one in hand.
        """
        self._contained_notes(lambda: self._unread.put_into(self.meta))
        count = len(self._entries)
        transient = self._collect_entries(self._entries[:count]) if count or self._pending else ()
        del self._entries[:count]
        if self._extra_info:
            self._contained(self._calls, 2, self._collect_calls)
            self._contained(self._stacks, 3, self._collect_stacks)
        else:
            del self._calls[:], self._stacks[:]
        return transient

    def _contained(self, items: list[Any], of_a_line: int, collect: Callable[[list[Any]], None]) -> None:
        """What is wrong with a stack or a parent must not keep the entries from being written. `of_a_line`: how many items make one."""
        count = len(items)
        if count:
            try:
                collect(items[:count])
            except Exception as failure:
                let_through(failure)
                lines = f"{count // of_a_line} lines of {layout.STACK} or {layout.CONSTRUCT}"
                self._problem(f"{lines} dropped ({type(failure).__name__}: {failure})")
            del items[:count]

    def _contained_notes(self, work: Callable[[], None]) -> None:
        """What is wrong with a note must not keep the entries from being written."""
        try:
            work()
        except Exception as failure:
            let_through(failure)
            self._problem(f"meta.json does not list all that was not looked at ({type(failure).__name__}: {failure})")
            self._unread.close()

    def _collect_entries(self, entries: list[Entry]) -> Pieces:
        waiting = self._pending + entries
        table = {entry.name: entry for entry in waiting}
        if len(table) < len(waiting):
            table = {}
            for entry in waiting:
                table.pop(entry.name, None)
                table[entry.name] = entry
        again = self._committed.intersection(table)
        if again:
            self._withdraw(again)
        self._encode_ready()
        ordered = list(table.values())
        first = next((i for i, entry in enumerate(ordered) if not entry.done), len(ordered))
        done, rest = ordered[:first], ordered[first:]
        if sum(len(entry.text) for entry in rest) > _MAX_HELD:
            held, rest = rest, []
            for entry in held:  # asked once: other threads finish entries meanwhile, and what changes sides between two looks is lost
                (done if entry.done else rest).append(entry)
        for first in range(0, len(done), _BATCH):
            self._commit(done[first : first + _BATCH])
        self._pending = rest
        # What is wrong with an unfinished one is told when it is finished.
        return tuple(entry.text or json_text.members({entry.name: entry.data}, 2, lambda reason: None) for entry in rest)

    def _commit(self, done: list[Entry]) -> None:
        texts = [entry.text or json_text.members({entry.name: entry.data}, 2, self._problem) for entry in done]
        # First the names: where only they are noted and not the text, the entries are found to be there again and the file is rewritten.
        self._committed.update(entry.name for entry in done)
        self._dump.append(*texts, entries=len(done))

    def _withdraw(self, names: set[str]) -> None:
        """Take entries out of dump.json whose names were added again; costs a rewrite."""
        data = json_text.parse(self._dump.text())["data"]
        kept = {name: value for name, value in data.items() if name not in names}
        self._dump.replace(json_text.members(kept, 2, self._problem), len(kept))
        self._committed -= names

    def _collect_calls(self, items: list[Any]) -> None:
        names, parents = items[::2], items[1::2]
        new: dict[str, str | None] = dict(zip(names, parents, strict=True))
        if len(new) == len(names) and self._construct.keys().isdisjoint(new):
            self._construct.update(new)
            self._construct_file.append(json_text.members(new, 1, self._problem))
            return
        for name, parent in zip(names, parents, strict=True):
            self._construct.pop(name, None)
            self._construct[name] = parent
        self._construct_file.replace(json_text.members(self._construct, 1, self._problem))

    def _collect_stacks(self, items: list[Any]) -> None:
        stacks = zip(items[::3], items[1::3], items[2::3], strict=True)
        self._stack_file.append(self._table.add(stacks, self._problem))

    def _restore(self) -> None:
        """Someone took files away: what was in them is lost, what is in memory is written to new ones."""
        self._reason = "the directory was removed during the run"
        self._warn("or a file in it was removed during the run; it is made again, what was in it is lost")
        self._meta_text = ""
        in_file = self._dump.entries
        for file in self._files.restore():
            if file is self._dump:
                self._lost += in_file
            elif file is self._stack_file:
                file.replace(self._table.regrouped())
            else:
                file.replace(json_text.members(self._construct, 1, self._problem))

    def _failed(self, failure: Exception) -> None:
        self._reason = reason = getattr(failure, "strerror", None) or f"{type(failure).__name__}: {failure}"
        self._warn(f"cannot be written ({reason}); the run goes on, what is recorded waits in memory and is tried again")
        if sum(file.waiting for file in self._grow) > _MAX_WAITING:
            self._lost += self._dump.waiting_entries
            for file in self._grow:
                file.clear()

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("%s %s", self.directory, text)

    def _problem(self, reason: str) -> None:
        if reason not in self._problems:
            self._errors.append(reason)
            self._problems[reason] = 1
