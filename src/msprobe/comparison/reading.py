"""One dump.json -> its calls, without ever holding all of its JSON."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import xxhash

from msprobe.comparison.frameworks.naming import MINDSPORE
from msprobe.comparison.rows import Builder, Call
from msprobe.format.parts import NotInParts, Part, read_in_parts
from msprobe.format.reader import Dump, read_dump

_checksum = xxhash.xxh3_128_digest


class Calls(list[Call]):
    """The calls of a dump in its order. `texts`: the checksum of an entry's text -> its call, of most calls of a large dump.
    `framework`: what the dump says of itself."""

    def __init__(self, calls: Iterable[Call] = (), framework: str | None = None) -> None:
        super().__init__(calls)
        self.framework = framework
        self.texts: dict[bytes, Call] = {}


def read_calls(path: Path, like: Sequence[Call] = ()) -> tuple[Dump, Calls]:
    """What stands before the entries of a dump (`data` may be empty), and its calls in the order of the file.

    Args:
        path: a dump.json or debug.json.
        like: the calls of the dump it will be compared with. Entries written with the same text there are not parsed again but the same
            Call; equal values of other entries share their memory.

    Raises:
        DumpFormatError: the file cannot be read.
    """
    known: dict[str, Call] | None = None
    collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of fresh objects, none of them garbage
    try:
        head, found = read_in_parts(path)
        like = _of_one_framework(like, head.framework)
        known = {call.name: call for call in like}
        same = like.texts if isinstance(like, Calls) else {}
        return head, _calls(found, Builder(str(path), known, head.framework), same, head.framework)
    except NotInParts:
        pass
    finally:
        if collecting:
            gc.enable()
    whole = read_dump(path)
    known = {call.name: call for call in _of_one_framework(like, whole.framework)} if known is None else known
    return whole, Calls(Builder(str(whole.path), known, whole.framework).calls(whole.data), whole.framework)


def _of_one_framework(like: Sequence[Call], framework: str | None) -> Sequence[Call]:
    """Equal texts mean equal calls only within one framework."""
    of_mindspore = isinstance(like, Calls) and like.framework == MINDSPORE
    return like if of_mindspore == (framework == MINDSPORE) else ()


def _calls(found: Iterable[Part], builder: Builder, same: Mapping[bytes, Call], framework: str | None) -> Calls:
    calls = Calls(framework=framework)
    for texts, entries in found:
        if not texts:
            calls += builder.calls(entries)
            continue
        sums = list(map(_checksum, texts))
        shared = [same.get(one) for one in sums]
        fresh = builder.calls_of_texts([text for text, call in zip(texts, shared, strict=True) if call is None])
        rest = iter(fresh)
        calls += [call if call is not None else next(rest) for call in shared]
        if not same:
            calls.texts.update(zip(sums, fresh, strict=True))
    if len({call.name for call in calls}) != len(calls):
        raise NotInParts  # a name that comes twice means the later entry in the place of the first
    return calls
