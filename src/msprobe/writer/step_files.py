"""Creating the directory of a step and its small files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence

from msprobe.format import layout, tensor_file
from msprobe.writer.exchange import put_over
from msprobe.writer.growing_file import GrowingFile, Pieces, hidden_name, write_new

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}


class StepFiles:
    """The directory, the empty documents in it, meta.json and the error log. Methods raise OSError."""

    def __init__(self, directory: str, growing: Sequence[GrowingFile], tensors: bool) -> None:
        self._directory = directory
        self._growing = growing
        self._tensors = tensors
        self._tensor_directory = os.path.join(directory, layout.TENSORS)
        self._meta = os.path.join(directory, layout.META)
        self._errors = os.path.join(directory, layout.ERRORS)
        self._meta_size = 0

    @property
    def size(self) -> int:
        """Bytes of all JSON files."""
        return sum(file.size for file in self._growing) + self._meta_size

    def open(self) -> None:
        """Make the directory and an empty, valid document under every name; what an earlier run left under them is replaced."""
        self.make_directories()
        main, *others = self._growing
        _place(main.hidden, main.path, main.shell)
        # The other documents start as the same two bytes: one file under several names, until each gets its own content.
        empty = [*(file.path for file in others), self._meta]
        hidden = hidden_name(self._directory, layout.META)
        write_new(hidden, b"{}")
        for path in empty:
            try:
                os.link(hidden, path)
            except FileExistsError:
                _place(hidden + "~", path, b"{}")
            except OSError as problem:
                if problem.errno not in _NO_LINKS:
                    raise
                _place(hidden + "~", path, b"{}")
        os.unlink(hidden)
        for file in self._growing:
            file.restart()
        self._meta_size = 2

    def appear(self, documents: dict[str, Pieces]) -> bool:
        """Bring the directory into being with these documents in it, all at one instant.

        Args:
            documents: name -> content.

        Returns:
            False where there is a directory of that name already; nothing has changed then.
        """
        if os.path.lexists(self._directory):
            return False
        above, name = os.path.split(self._directory)
        hidden = os.path.join(above, f".{name}.next")
        _make_below(above, hidden)
        for document, content in documents.items():
            write_new(os.path.join(hidden, document), *content)
        try:
            os.rename(hidden, self._directory)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            shutil.rmtree(hidden, ignore_errors=True)
            return False
        self._meta_size = sum(map(len, documents.get(layout.META, ())))
        return True

    def make_directories(self) -> None:
        """Make the directory without any document in it, and take out what an earlier run left."""
        if not _make_directory(self._directory):
            self._remove_leftovers()
        if self._tensors and not _make_directory(self._tensor_directory):
            self._remove_unfinished_tensors()

    def restore(self) -> Iterator[GrowingFile]:
        """Make again what someone took away, as empty documents; gives each when it is there again."""
        _make_directory(self._directory)
        if self._tensors:
            _make_directory(self._tensor_directory)
        for file in self._growing:
            if not file.intact():
                _place(file.hidden, file.path, file.shell)
                file.restart()
                yield file

    def write_meta(self, text: str) -> None:
        data = text.encode()
        _place(hidden_name(self._directory, layout.META), self._meta, data)
        self._meta_size = len(data)

    def append_errors(self, lines: list[str]) -> None:
        """Move `lines` to the error log; they stay in the list where that fails."""
        count = len(lines)
        if not count:
            return
        text = "".join(str(line).rstrip("\n") + "\n" for line in lines[:count])
        descriptor = os.open(self._errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            view = memoryview(text.encode("utf-8", "backslashreplace"))
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        del lines[:count]

    def _remove_leftovers(self) -> None:
        """Hidden twins, and the documents of an earlier run: where no new one can be written, they are not to be taken for it."""
        contract = {layout.DUMP, layout.DEBUG, layout.STACK, layout.CONSTRUCT, layout.META, layout.ERRORS}
        for name in os.listdir(self._directory):
            twin = name.startswith(".") and name.rstrip("~").endswith(".next") and name.rstrip("~")[1:-5] in contract
            if twin or name in contract:
                os.unlink(os.path.join(self._directory, name))

    def _remove_unfinished_tensors(self) -> None:
        """What a killed process left half-written."""
        for name in os.listdir(self._tensor_directory):
            if name.startswith(".") and name.endswith(tensor_file.UNFINISHED):
                os.unlink(os.path.join(self._tensor_directory, name))


def _make_directory(path: str) -> bool:
    """True where the directory is new."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
    return True


def _make_below(above: str, path: str) -> None:
    """Make the directory `path`, which lies in `above`; of a new step neither is there."""
    try:
        os.mkdir(above)
    except OSError:
        pass  # it is there, or what it lies in is not
    _make_directory(path)


def _place(hidden: str, path: str, data: bytes) -> None:
    """Put a whole small file under its name."""
    write_new(hidden, data)
    put_over(hidden, path)
