"""Exit codes, and how a command says that it could not do its work."""

from __future__ import annotations

import sys

EXIT_OK = 0
EXIT_FOUND = 1
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141


def fail(message: str, program: str = "msprobe") -> None:
    """Writes one line to standard error; line breaks in the message become spaces."""
    if sys.stderr is not None:  # closed: print would take standard output
        print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
