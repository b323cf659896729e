"""Lines to standard output: coloured by rich in a terminal, plain everywhere else; a bar on standard error while it takes long."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from msprobe.comparison.block import Line

_STYLES = {"lead": "bold reverse", "head": "bold", "good": "green", "bad": "red", "dim": "dim"}
_PATIENCE = 1.0
"""Seconds before a bar appears: rich takes longer to load than a small comparison takes."""

Progress = Callable[[int, int, str], None]
"""Called with how many of how many things are done, and what is at work now."""


def show(lines: Iterable[Line]) -> None:
    """Prints the lines. rich is imported only where it is used: it takes longer than a small comparison."""
    if sys.stdout is None:  # closed by who started us (`>&-`)
        return
    if not _is_coloured(sys.stdout):
        for line in lines:
            print(_printable(line.text))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(_printable(line.text), style=_STYLES.get(line.style), markup=False)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Gives a callback that draws a bar on standard error, from the first call on that comes later than a second after the start.

    None where standard error is no terminal.
    """
    if not _is_coloured(sys.stderr):
        yield None
        return
    with ExitStack() as stack:
        yield _Bar(stack)


class _Bar:
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._began = time.monotonic()
        self._update: Callable[[int, int, str], None] | None = None

    def __call__(self, done: int, total: int, what: str) -> None:
        if self._update is None:
            if total < 2 or done >= total or time.monotonic() - self._began < _PATIENCE:
                return
            self._update = self._open(total)
        self._update(done, total, what)

    def _open(self, total: int) -> Callable[[int, int, str], None]:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(30), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        bar = self._stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
        task = bar.add_task("", total=total)
        return lambda done, total, what: bar.update(task, completed=done, total=total, description=escape(_printable(what, sys.stderr)))


def _is_coloured(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _printable(text: str, stream: TextIO | None = None) -> str:
    """What the terminal's encoding cannot spell, and control characters of a hostile dump, as escapes."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    encoding = (stream or sys.stdout).encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
