"""Swap two files of one directory so that both names exist at every instant."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_SYSCALL_NUMBER = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "loongarch64": 276, "ppc64le": 357, "s390x": 347}
# What a kernel or a file system answers that does not know the flag, as opposed to a real failure.
_NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}

_Call = Callable[[bytes, bytes], int]


def _find_renameat2() -> _Call | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    function = getattr(libc, "renameat2", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
        function.restype = ctypes.c_int
        return lambda a, b: int(function(_AT_FDCWD, a, _AT_FDCWD, b, _RENAME_EXCHANGE))
    number = _SYSCALL_NUMBER.get(platform.machine())
    syscall = getattr(libc, "syscall", None)
    if number is None or syscall is None:
        return None
    syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    syscall.restype = ctypes.c_long
    return lambda a, b: int(syscall(number, _AT_FDCWD, a, _AT_FDCWD, b, _RENAME_EXCHANGE))


_renameat2: _Call | None = None
_looked_up = False


def _atomic_exchange(first: str, second: str) -> bool:
    """True when the kernel swapped the two; False when it cannot; OSError when it tried and failed."""
    global _renameat2, _looked_up
    if not _looked_up:
        try:
            _renameat2 = _find_renameat2()
        except (OSError, AttributeError, TypeError):
            _renameat2 = None
        _looked_up = True
    if _renameat2 is None:
        return False
    if _renameat2(os.fsencode(first), os.fsencode(second)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number), first, None, second)


def exchange(hidden: str, final: str) -> bool:
    """Put the content of `hidden` under the name `final`, which exists at every instant.

    True: `hidden` now names what `final` named before. False: neither the kernel's exchange nor hard links exist here,
    the old content is gone and so is the name `hidden`. Raises OSError with `final` untouched or already replaced, never half-way.
    """
    if _atomic_exchange(hidden, final):
        return True
    spare = hidden + "~"
    try:
        _unlink_if_there(spare)
        os.link(final, spare)
    except OSError as problem:
        if problem.errno == errno.ENOENT:
            raise
        os.replace(hidden, final)
        return False
    os.replace(hidden, final)
    os.replace(spare, hidden)
    return True


def put_over(hidden: str, final: str) -> None:
    """Like `os.replace`, but without ext4's wait for the disk, which it makes whenever a rename covers an existing file."""
    if os.path.lexists(final) and _atomic_exchange(hidden, final):
        os.unlink(hidden)
    else:
        os.replace(hidden, final)


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
