"""One dump.json -> its calls, without ever holding all of its JSON."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

from msprobe.comparison.rows import Builder, Call
from msprobe.format.parts import NotInParts, read_in_parts
from msprobe.format.reader import Dump, read_dump


def read_calls(path: Path, like: Sequence[Call] = ()) -> tuple[Dump, list[Call]]:
    """What stands before the entries of a dump (`data` may be empty), and its calls in the order of the file.

    Args:
        path: a dump.json or debug.json.
        like: the calls of the dump it will be compared with; equal values share their memory.

    Raises:
        DumpFormatError: the file cannot be read.
    """
    known = {call.name: call for call in like}
    builder = Builder(str(path), known)
    collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of fresh objects, none of them garbage
    try:
        head, parts = read_in_parts(path)
        return head, [call for part in parts for call in builder.calls(part)]
    except NotInParts:
        pass
    finally:
        if collecting:
            gc.enable()
    whole = read_dump(path)
    return whole, Builder(str(whole.path), known).calls(whole.data)
