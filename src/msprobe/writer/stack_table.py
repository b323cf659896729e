"""stack.json: names grouped by the call stack they were made from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from json.encoder import encode_basestring_ascii

from msprobe.contain import let_through

Frames = Sequence[str] | Callable[[], Sequence[str]]
Stack = tuple[str, Hashable, Frames]

# Texts of whole stacks, kept from step to step: a training loop makes the same few hundred again and again.
_CACHE_LIMIT = 2048
_texts: dict[tuple[str, ...], str] = {}


class StackTable:
    """Collects stacks and gives them out as members of stack.json, `"id": [[names], [frames]]`, ids in order of first use."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, tuple[dict[str, None], str]] = {}
        self._next_id = 0
        self.scattered = False  # some stack has been given out under more than one id

    def add(self, stacks: Iterable[Stack], problem: Callable[[str], None]) -> bytes:
        """The members for `stacks`. A stack that was given out before comes again under a new id, with the new names only."""
        fresh: dict[Hashable, tuple[dict[str, None], str]] = {}
        for name, key, frames in stacks:
            group = fresh.get(key)
            if group is None:
                known = self._groups.get(key)
                fresh[key] = ({name: None}, _frames_text(frames, name, problem) if known is None else known[1])
            else:
                group[0][name] = None
        for key, (names, text) in fresh.items():
            known = self._groups.get(key)
            if known is None:
                self._groups[key] = (names, text)
            else:
                self.scattered = True
                known[0].update(names)
        # Last: where an interruption comes before, the same stacks are added again, known by then and so regrouped later.
        first, self._next_id = self._next_id, self._next_id + len(fresh)
        return _members(fresh.values(), first)

    def regrouped(self) -> bytes:
        """The members of the whole table, each stack once."""
        self._next_id = len(self._groups)
        return _members(self._groups.values(), 0)


def _members(groups: Iterable[tuple[dict[str, None], str]], first: int) -> bytes:
    text = ",".join(
        f'\n "{number}": [\n  [\n   ' + ",\n   ".join(map(encode_basestring_ascii, names)) + "\n  ],\n  " + frames + "\n ]"
        for number, (names, frames) in enumerate(groups, first)
    )
    return text.encode("ascii")


def _frames_text(frames: Frames, name: str, problem: Callable[[str], None]) -> str:
    try:
        key = tuple(frames() if callable(frames) else frames)
        text = _texts.get(key)
        if text is None:
            text = "[\n   " + ",\n   ".join(map(encode_basestring_ascii, key)) + "\n  ]" if key else "[]"
            if len(_texts) >= _CACHE_LIMIT:
                _texts.clear()
            _texts[key] = text
    except Exception as failure:
        let_through(failure)
        problem(f"{name}: the call stack could not be had ({type(failure).__name__}: {failure})")
        return "[]"
    return text
