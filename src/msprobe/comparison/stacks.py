"""Stack frames of stack.json: which of them is the user's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msprobe.comparison.names import forward_of, parse

_FRAME = re.compile(r"File (?P<path>.*), line (?P<line>[0-9]+), in (?P<function>.*?), ?\n ?(?P<source>.*)\Z", re.DOTALL)
_INSTALLED = re.compile(r"/(site-packages|dist-packages)/")
_STANDARD_LIBRARY = re.compile(r"/lib/python3(\.[0-9]+)?t?/(?!site-packages/|dist-packages/)")
_FRAMEWORK = re.compile(
    r"/(site-packages|dist-packages)/(torch|torch_npu|mindspore|msprobe)/"
    r"|/torch/(_|nn/|utils/|autograd/|optim/|distributed/|fx/|cuda/|amp/|func/|functional\.py|overrides\.py|tensor\.py)"
    r"|/msprobe/(pytorch|mindspore|recording)/"
)


@dataclass(frozen=True)
class Frame:
    """One line of user code."""

    path: str
    line: int
    function: str
    source: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line} in {self.function}"
        return f"{place}: {self.source}" if self.source else place


def frames_of(name: str, stacks: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The frames recorded for an entry, innermost first; a backward entry and a parameter gradient have those of their forward."""
    found = stacks.get(name)
    if found:
        return found
    forward = forward_of(name)
    if forward is None:
        parts = parse(name)
        if parts.direction != "parameters_grad":
            return ()
        forward = f"{parts.recorded}.forward.0"
    return stacks.get(forward, ())


def parse_frame(text: str) -> Frame | None:
    """`File x.py, line 3, in f, \\n source` as a Frame; None when the text is no frame."""
    match = _FRAME.match(text)
    if match is None:
        return None
    return Frame(match["path"], int(match["line"]), match["function"], match["source"].strip())


def locate(frames: Sequence[str]) -> tuple[Frame | None, Frame | None]:
    """The user's line, and the library's line that stands nearer to the call, if there is one.

    The user's line is in the innermost frame outside installed packages, the standard library, torch and msprobe; the library's in the
    innermost frame outside torch, msprobe and the standard library. When everything is installed, the latter takes the former's place.
    """
    user: Frame | None = None
    library: Frame | None = None
    for text in frames:
        frame = parse_frame(text)
        if frame is None:
            continue
        kind = kind_of(frame)
        if kind == "framework":
            continue
        library = library or frame
        if kind == "user":
            user = frame
            break
    if user is None:
        return library, None
    return user, library if library != user else None


def kind_of(frame: Frame) -> Literal["user", "library", "framework"]:
    """Whose code a frame is: the user's, that of an installed package, or of torch, msprobe and the standard library."""
    path = frame.path.replace("\\", "/")
    if _FRAMEWORK.search(path) or _STANDARD_LIBRARY.search(path) or path.startswith("<frozen"):
        return "framework"
    return "library" if _INSTALLED.search(path) else "user"
