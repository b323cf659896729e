"""A JSON file that grows by appending and is valid under its final name at every instant, whatever kills the process.

Two files lie one flush apart. The hidden one (`.dump.json.next`) is extended in place: its closing tail is overwritten by the new
members and a new tail. Then the two are exchanged. Each byte is written twice, so the cost is linear in what is new.

Text comes and goes in pieces and is never put together: the copies of a step would be of half a megabyte and more, for which malloc, time
and again, takes other memory and keeps it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sized
from typing import NamedTuple

from msprobe.writer.exchange import exchange, put_over

Pieces = tuple[bytes, ...]
"""Text, one piece after the other."""

# Pieces in one system call; Linux and macOS take 1024.
_AT_ONCE = 1000


def hidden_name(directory: str, name: str) -> str:
    """The twin of `name`; it never matches a name of the contract."""
    return os.path.join(directory, f".{name}.next")


def write_new(path: str, *pieces: bytes) -> None:
    """A new file with its own inode; what had the name before is unlinked, never truncated (it may be a link to other data)."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileExistsError:
        os.unlink(path)
        descriptor = os.open(path, flags, 0o666)
    try:
        write_at(descriptor, pieces, 0)
    finally:
        os.close(descriptor)


def write_at(descriptor: int, pieces: Iterable[bytes], offset: int) -> None:
    """All of `pieces` at `offset`. Raises OSError, possibly after a part was written."""
    rest: list[bytes | memoryview] = list(pieces)
    while rest:
        some = rest[:_AT_ONCE]
        written = _write(descriptor, some, offset)
        offset += written
        if written < _size(some):
            rest[:_AT_ONCE] = _behind(some, written)
        else:
            del rest[:_AT_ONCE]


def _behind(pieces: list[bytes | memoryview], size: int) -> list[bytes | memoryview]:
    """What is left of pieces behind the first `size` bytes."""
    for number, piece in enumerate(pieces):
        if size < len(piece):
            return [memoryview(piece)[size:], *pieces[number + 1 :]]
        size -= len(piece)
    return []


def _write(descriptor: int, pieces: list[bytes | memoryview], offset: int) -> int:
    if hasattr(os, "pwritev"):
        return os.pwritev(descriptor, pieces, offset)
    return os.pwrite(descriptor, b"".join(pieces), offset)  # macOS before version 11


def _size(pieces: Iterable[Sized]) -> int:
    return sum(map(len, pieces))


def _joined(members: Pieces) -> Pieces:
    """Members with commas between them."""
    pieces = [b","] * (2 * len(members) - 1) if members else []
    pieces[::2] = members
    return tuple(pieces)


class _State(NamedTuple):
    """One value, replaced as a whole: an exception that arrives at any moment (Ctrl-C) leaves the state before or the state after.

    Doing the same write again from the state before is harmless: what the hidden file holds beyond `hidden_body` is written again.
    """

    body: int  # bytes of the final file before its tail
    entries: int  # how many of the caller's entries they are
    closing: Pieces  # the tail of the final file
    hidden_body: int  # bytes of the hidden file that are those of the final one; 0: it must be made anew
    carry: Pieces  # what the final file holds beyond them; shorter where it has to be read again
    shared: bool  # the final file may have other names: never extend it in place
    new: Pieces = ()  # members that were appended, in no file yet
    new_entries: int = 0


_NOT_THERE: Pieces = ()
"""`closing` of a file that has to be written as a whole, whatever stands under its name now."""


class GrowingFile:
    """One growing document. `head` is everything before the members, `tail_empty` and `tail` what closes it without and with members.

    Not thread-safe. The methods raise OSError; the final file is valid then too, and the same call may be tried again.
    """

    def __init__(self, directory: str, name: str, head: str, tail_empty: str, tail: str) -> None:
        self.path = os.path.join(directory, name)
        self.hidden = hidden_name(directory, name)
        self._head = head.encode()
        self._tail_empty = tail_empty.encode()
        self._tail = tail.encode()
        self._state = self._empty()

    def _empty(self, closing: Pieces = _NOT_THERE) -> _State:
        return _State(len(self._head), 0, closing, 0, (self._head,), True)

    @property
    def shell(self) -> bytes:
        """The document without members."""
        return self._head + self._tail_empty

    @property
    def size(self) -> int:
        """Bytes of the document under its final name."""
        return self._state.body + _size(self._state.closing)

    @property
    def entries(self) -> int:
        """Entries in the final file, as `append` was told."""
        return self._state.entries

    @property
    def waiting_entries(self) -> int:
        """Entries that wait to be written."""
        return self._state.new_entries

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        return _size(self._state.new)

    def append(self, *members: bytes, entries: int = 0) -> None:
        """Members (see json_text.members; one or more in each piece) that every later state of the file holds. Memory only."""
        members = tuple(filter(None, members))
        if members:
            state = self._state
            self._state = state._replace(new=state.new + members, new_entries=state.new_entries + entries)

    def clear(self) -> None:
        """Forget what waits to be written."""
        self._state = self._state._replace(new=(), new_entries=0)

    def let_go(self) -> None:
        """Keep no text in memory; nothing is written any more."""
        self._state = self._state._replace(hidden_body=0, carry=(), new=(), new_entries=0)

    def restart(self) -> None:
        """The final file is an empty document now, maybe one with other names; what waits to be written still does."""
        state = self._state
        self._state = self._empty((self._tail_empty,))._replace(new=state.new, new_entries=state.new_entries)

    def replace(self, members: bytes, entries: int = 0) -> None:
        """The next flush writes the document anew, with these members only."""
        self._state = self._empty()._replace(new=(members,) if members else (), new_entries=entries)

    def intact(self) -> bool:
        """False where someone removed or changed the final file."""
        try:
            return os.stat(self.path).st_size == self.size or self._state.closing == _NOT_THERE
        except OSError:
            return False

    def flush(self, transient: Pieces = ()) -> None:
        """Bring the final file up to date; `transient` are members that are not final yet and come last, until the next flush."""
        state, tail = self._state, self._tail_with(transient)
        if not state.new and tail == state.closing:
            return
        state, new = self._write_hidden(state, tail)
        if state.closing == _NOT_THERE:
            put_over(self.hidden, self.path)
            self._advance(state, new, tail, 0, ())
            return
        kept = exchange(self.hidden, self.path)
        if kept and not state.shared:
            self._advance(state, new, tail, state.body, new)
        elif kept:
            self._advance(state, new, tail, 0, state.carry + new)
            os.unlink(self.hidden)
        else:
            self._advance(state, new, tail, 0, ())

    def whole(self, transient: Pieces = ()) -> tuple[Pieces, Callable[[], None]]:
        """The whole document of a file that was never made, and what to call when the caller has put it under its name."""
        state, tail = self._state, self._tail_with(transient)
        new = self._new(state)
        return (self._head, *new, *tail), lambda: self._advance(state, new, tail, 0, (self._head, *new))

    def finish(self, transient: Pieces = ()) -> None:
        """Bring the final file up to date and take the hidden one away. A later flush works, at the price of a copy."""
        state, tail = self._state, self._tail_with(transient)
        if state.new or tail != state.closing:
            state, new = self._write_hidden(state, tail)
            put_over(self.hidden, self.path)
            self._advance(state, new, tail, 0, ())
        else:
            self._state = state._replace(hidden_body=0, carry=())
            try:
                os.unlink(self.hidden)
            except FileNotFoundError:
                pass
            os.stat(self.path)  # somebody may have taken it away

    def abandon(self) -> None:
        """Take the hidden file away, whatever is in it. Never raises."""
        self._state = self._state._replace(hidden_body=0, carry=())
        try:
            os.unlink(self.hidden)
        except OSError:
            pass

    def text(self) -> str:
        """The whole document, what waits included, as it would be after a flush. Reads the final file, where there is one."""
        state = self._state
        body = state.carry if _size(state.carry) == state.body else (self._read_body(state),)
        return b"".join((*body, *self._new(state), *self._tail_with(()))).decode()

    def _new(self, state: _State) -> Pieces:
        """What waits, as it will stand in the file."""
        new = _joined(state.new)
        return (b",", *new) if new and state.body > len(self._head) else new

    def _tail_with(self, transient: Pieces) -> Pieces:
        has_members = self._state.new or self._state.body > len(self._head)
        last = _joined(transient)
        if not last:
            return (self._tail if has_members else self._tail_empty,)
        return (b",", *last, self._tail) if has_members else (*last, self._tail)

    def _write_hidden(self, state: _State, tail: Pieces) -> tuple[_State, Pieces]:
        """Make the hidden file the next state of the document; returns the state that the write started from and what was new."""
        new = self._new(state)
        if state.hidden_body:
            try:
                descriptor = os.open(self.hidden, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                # Known before the file is made anew: where that is cut off, what there is of it is not to be continued.
                state = self._state = state._replace(hidden_body=0, carry=())
            else:
                try:
                    pieces = state.carry + new + tail
                    write_at(descriptor, pieces, state.hidden_body)
                    os.ftruncate(descriptor, state.hidden_body + _size(pieces))
                finally:
                    os.close(descriptor)
                return state, new
        if _size(state.carry) != state.body:
            state = state._replace(carry=(self._read_body(state),))
        write_new(self.hidden, *state.carry, *new, *tail)
        return state, new

    def _read_body(self, state: _State) -> bytes:
        with open(self.path, "rb") as file:
            body = file.read(state.body)
        if len(body) != state.body:
            raise FileNotFoundError(errno.ENOENT, "changed by another process", self.path)
        return body

    def _advance(self, state: _State, new: Pieces, tail: Pieces, hidden_body: int, carry: Pieces) -> None:
        self._state = _State(state.body + _size(new), state.entries + state.new_entries, tail, hidden_body, carry, False)
