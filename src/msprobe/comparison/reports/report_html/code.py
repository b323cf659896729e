"""Where each call was made: its stack, with the code around the frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.comparison.compared import Compared
from msprobe.comparison.reports.report_html.source_lines import context, has_changed
from msprobe.comparison.stacks import frames_of, kind_of, parse_frame

CHANGED = -2
"""Stands for the number of a context."""
MAX_CONTEXTS = 5000
"""Frames that get their lines of code: a run that makes its code as it goes would have no end of them."""


def code(compared: Compared) -> dict[str, Any]:
    """`frames`: (path, line, function, source, kind, number of a context, -1 for none, CHANGED where the file is another one by now);
    `stacks`: lists of frames, innermost first; `target`: the stack of each call, -1 for none; `golden`: that of its partner, where it is
    made by another line."""
    table = _Table()
    stacks = compared.frames
    target: list[int] = []
    golden: dict[str, int] = {}
    for number, call in enumerate(compared.calls):
        target.append(table.stack(call.name, stacks) if call.pair.target is not None else -1)
        if call.pair.golden is not None and compared.golden_stacks:
            theirs = table.stack(call.pair.golden.name, compared.golden_stacks)
            if theirs >= 0 and theirs != target[number]:
                golden[str(number)] = theirs
    return {"frames": table.frames, "contexts": table.contexts, "stacks": table.stacks, "target": target, "golden": golden}


class _Table:
    def __init__(self) -> None:
        self.frames: list[list[Any]] = []
        self.contexts: list[tuple[int, list[str]]] = []
        self.stacks: list[list[int]] = []
        self._frame: dict[str, int] = {}
        self._stack: dict[tuple[int, ...], int] = {}
        self._seen: dict[int, int] = {}

    def stack(self, name: str, stacks: Mapping[str, Sequence[str]]) -> int:
        frames = frames_of(name, stacks)
        if not frames:
            return -1
        if id(frames) not in self._seen:
            key = tuple([self._number(text) for text in frames])
            if key not in self._stack:
                self._stack[key] = len(self.stacks)
                self.stacks.append(list(key))
            self._seen[id(frames)] = self._stack[key]
        return self._seen[id(frames)]

    def _number(self, text: str) -> int:
        number = self._frame.get(text)
        if number is None:
            number = self._frame[text] = len(self.frames)
            frame = parse_frame(text)
            if frame is None:
                self.frames.append([text, 0, "", "", "framework", -1])
                return number
            kind = kind_of(frame)
            at = -1
            if kind != "framework" and len(self.contexts) < MAX_CONTEXTS:
                lines = context(frame.path, frame.line, frame.source)
                if lines is not None:
                    at = len(self.contexts)
                    self.contexts.append(lines)
                elif has_changed(frame.path, frame.line, frame.source):
                    at = CHANGED
            self.frames.append([frame.path, frame.line, frame.function, frame.source, kind, at])
        return number
