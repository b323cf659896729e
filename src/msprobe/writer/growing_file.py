"""A JSON file that grows by appending and is valid under its final name at every instant, whatever kills the process.

Two files lie one flush apart. The hidden one (`.dump.json.next`) is extended in place: its closing tail is overwritten by the new
members and a new tail. Then the two are exchanged. Each byte is written twice, so the cost is linear in what is new.
"""

from __future__ import annotations

import os

from msprobe.writer.exchange import exchange, put_over


def hidden_name(directory: str, name: str) -> str:
    """The twin of `name`; it never matches a name of the contract."""
    return os.path.join(directory, f".{name}.next")


def write_new(path: str, data: bytes) -> None:
    """A new file with its own inode; what had the name before is unlinked, never truncated (it may be a link to other data)."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileExistsError:
        os.unlink(path)
        descriptor = os.open(path, flags, 0o666)
    try:
        write_at(descriptor, data, 0)
    finally:
        os.close(descriptor)


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """All of `data` at `offset`. Raises OSError, possibly after a part was written."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


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
        self._new: list[str] = []  # appended, in no file yet
        self.restart()

    def restart(self) -> None:
        """The final file is an empty document again, maybe one that shares its inode with others; what waits to be written still does."""
        self._body = len(self._head)  # bytes of the final file before its tail
        self._closing = self._tail_empty  # the tail of the final file
        self._hidden_body = 0  # bytes of the hidden file that hold; 0: it must be made anew
        self._carry = self._head  # what the final file holds beyond those
        self._shared = True  # the final file must never be extended in place

    def clear(self) -> None:
        """Forget what waits to be written."""
        self._new = []

    def replace(self, members: str) -> None:
        """The next flush writes the document anew, with these members only."""
        self.restart()
        self._closing = b""
        self._new = [members] if members else []

    def intact(self) -> bool:
        """False where someone removed or changed the final file."""
        try:
            return self._closing == b"" or os.stat(self.path).st_size == self.size
        except OSError:
            return False

    @property
    def shell(self) -> bytes:
        """The document without members."""
        return self._head + self._tail_empty

    @property
    def size(self) -> int:
        """Bytes of the document under its final name."""
        return self._body + len(self._closing)

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        return sum(map(len, self._new))

    def append(self, members: str) -> None:
        """Members (see json_text.members) that every later state of the file holds. Memory only."""
        if members:
            self._new.append(members)

    def flush(self, transient: str = "") -> None:
        """Bring the final file up to date; `transient` are members that are not final yet and come last, until the next flush."""
        tail = self._tail_with(transient)
        if not self._new and tail == self._closing:
            return
        new = self._write_hidden(tail)
        kept = exchange(self.hidden, self.path)
        if kept and self._shared:
            os.unlink(self.hidden)
            self._carry += new
            self._hidden_body = 0
        elif kept:
            self._carry = new
            self._hidden_body = self._body
        else:
            self._carry = b""
            self._hidden_body = 0
        self._advance(new, tail)

    def finish(self, transient: str = "") -> None:
        """Bring the final file up to date and take the hidden one away. A later flush works, at the price of a copy."""
        tail = self._tail_with(transient)
        if self._new or tail != self._closing:
            new = self._write_hidden(tail)
            put_over(self.hidden, self.path)
            self._advance(new, tail)
        else:
            try:
                os.unlink(self.hidden)
            except FileNotFoundError:
                pass
        self._carry = b""
        self._hidden_body = 0

    def text(self) -> str:
        """The whole document, what waits included, as it would be after a flush. Reads the final file."""
        return self._read_body().decode() + self._joined() + (self._tail if self._has_members() else self._tail_empty).decode()

    def _has_members(self) -> bool:
        return bool(self._new) or self._body > len(self._head)

    def _joined(self) -> str:
        return ("," if self._new and self._body > len(self._head) else "") + ",".join(self._new)

    def _tail_with(self, transient: str) -> bytes:
        if not transient:
            return self._tail if self._has_members() else self._tail_empty
        return (("," if self._has_members() else "") + transient).encode() + self._tail

    def _write_hidden(self, tail: bytes) -> bytes:
        """Make the hidden file the next state of the document; returns the part of it that is new."""
        new = self._joined().encode()
        if self._hidden_body:
            try:
                descriptor = os.open(self.hidden, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                self._hidden_body = 0
                self._carry = b""
            else:
                try:
                    text = self._carry + new + tail
                    write_at(descriptor, text, self._hidden_body)
                    os.ftruncate(descriptor, self._hidden_body + len(text))
                finally:
                    os.close(descriptor)
                return new
        if len(self._carry) != self._body:
            self._carry = self._read_body()
        write_new(self.hidden, self._carry + new + tail)
        return new

    def _read_body(self) -> bytes:
        with open(self.path, "rb") as file:
            body = file.read(self._body)
        if len(body) != self._body:
            raise FileNotFoundError(2, "changed by another process", self.path)
        return body

    def _advance(self, new: bytes, tail: bytes) -> None:
        self._body += len(new)
        self._closing = tail
        self._new = []
        self._shared = False
