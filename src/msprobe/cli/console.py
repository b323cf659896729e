"""Lines to standard output: coloured by rich in a terminal, plain everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from msprobe.comparison.block import Line

_STYLES = {"head": "bold", "good": "green", "bad": "red", "dim": "dim"}


def show(lines: Iterable[Line]) -> None:
    """Prints the lines. rich is imported only where it is used: it takes longer than a small comparison."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        for line in lines:
            print(_printable(line.text))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(_printable(line.text), style=_STYLES.get(line.style), markup=False)


def _printable(text: str) -> str:
    """What the terminal's encoding cannot spell, and control characters of a hostile dump, as escapes."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
