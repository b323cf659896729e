"""Runs the user's command as if it stood alone: same terminal, same signals, same ending.

It is in the process group of this process, so that the terminal's signals reach it by themselves; those that somebody sends to this
process alone are passed on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msprobe.launch.command import cannot_run

_PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH") if hasattr(signal, name)
)
_FROM_KERNEL = 0x80
"""`si_code` of what the terminal sends, to the whole group."""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Runs a command to its end.

    Args:
        command: program and arguments.
        variables: all of its environment.

    Returns:
        Its exit code, negative for the signal that killed it.

    Raises:
        UsageError: the program cannot be started.
    """
    if not hasattr(signal, "sigwaitinfo"):
        return _simply(command, variables)
    watched = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        try:
            process = subprocess.Popen(command, env=dict(variables), preexec_fn=_prepare(before))
        except OSError as error:
            raise cannot_run(command, error) from None
        while True:
            info = signal.sigwaitinfo(watched)
            if info.si_signo != signal.SIGCHLD:
                if info.si_code != _FROM_KERNEL:
                    with contextlib.suppress(ProcessLookupError):
                        process.send_signal(info.si_signo)
            elif process.poll() is not None:
                return process.returncode
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare(mask: set[Any]) -> Callable[[], None]:
    """What the new process does before it becomes the command: the signals it should see, and an end with ours if we are killed."""
    prctl = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        if prctl is not None:
            prctl(_DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(137)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _simply(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Without a way to see who sends a signal."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(command, env=dict(variables), preexec_fn=None if os.name == "nt" else lambda: _restore(handler))
    except OSError as error:
        raise cannot_run(command, error) from None
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    return process.wait()


def _restore(handler: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL if handler is not signal.SIG_IGN else signal.SIG_IGN)


def end_like(code: int) -> int:
    """The exit code to end with; where the command was killed by a signal this process ends by the same one, as a shell expects."""
    if code >= 0:
        return code
    number = -code
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # the command has left its own
    with contextlib.suppress(ValueError, OSError):
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return 128 + number
