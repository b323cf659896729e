"""Files that TensorDump has written, on a device whose graphs cannot call Python: it numbers all of them together, and here names count
for themselves.

Until a step ends its files are called `{name}.tensordump_{dtype}_{n}.npy`, so that none is taken for one that has its name for good.
TensorDump writes them in threads of its own, and nothing says when it is done: what comes late gets its name when the next step ends, or
the interpreter.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.mindspore.static_save.files import SavedFiles, absolute

_MARK = ".tensordump"
_NAME = re.compile(rf"(.+){re.escape(_MARK)}_(\w+)_([0-9]+)\.npy")
_CLOCKS_DIFFER = 2.0
"""Seconds by which the clock of a file system may be behind ours."""


_LONGEST = 180
"""Characters of a name, so that there is room for what TensorDump adds."""


class _File(NamedTuple):
    """One that TensorDump has written; `number`: that of all it writes in this process."""

    number: int
    name: str
    dtype: str
    path: str


class DumpedFiles:
    """Those of a process."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {}
        self._since = time.time() - _CLOCKS_DIFFER
        self._floor = 0
        """Files with lower numbers have their names, or were waited for in vain."""
        self._missing: set[int] = set()
        """Numbers that the last look did not find."""

    def path(self, directory: str, name: str) -> str:
        """What TensorDump is given as the path of a value: it puts step and rank into the braces itself.

        Args:
            directory: `save_dir`.
            name: of the value.
        """
        where, stem = absolute(directory), layout.safe_file_name(name)
        names = self._names.setdefault(where, {})
        if len(stem) > _LONGEST:
            stem = f"{stem[:_LONGEST]}.{len(names)}"
        names[stem] = name
        return os.path.join(where, "{step}", "{rank}", stem + _MARK)

    def settle(self, files: SavedFiles, last: bool = False) -> None:
        """Give the files of this step and the one before it their names, in the order of their numbers; never raises.

        Args:
            files: counts.
            last: the interpreter ends. Else, where a number is missing for the first time, the files behind it wait for it.
        """
        try:
            found = sorted(self._found(files))
            missing = set(range(self._floor, max((file.number for file in found), default=0))) - {file.number for file in found}
            awaited = None if last else min(missing - self._missing, default=None)
            for file in found:
                if awaited is None or file.number < awaited:
                    files.rename(file.path, file.name, file.dtype)
                    self._floor = max(self._floor, file.number + 1)
            self._missing = {number for number in missing if number >= self._floor}
        except Exception as error:
            let_through(error)
            files.tell(f"save: what TensorDump has written could not be renamed: {error!r}")

    def _found(self, files: SavedFiles) -> list[_File]:
        found = []
        for directory, names in list(self._names.items()):
            for place in files.places(directory):
                for entry in os.scandir(place) if os.path.isdir(place) else ():
                    match = _NAME.fullmatch(entry.name)
                    if match is not None and entry.stat().st_mtime >= self._since:  # not of an earlier run
                        stem, dtype, number = match.groups()
                        found.append(_File(int(number), names.get(stem, stem), dtype, entry.path))
        return found


DUMPED = DumpedFiles()
