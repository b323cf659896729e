"""Which rank this process is, and where it comes from."""

from __future__ import annotations

import multiprocessing
import os
import sys

import torch


def current_rank() -> int | None:
    """The rank in the default process group, None where there is none."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return None


def maybe_forked() -> bool:
    """Whether this process may be a fork of one that had threads: then what torch computes with may wait for threads that are gone.

    A child of `multiprocessing` that was not spawned is one. Any other has this thread alone, where a process that has imported numpy or
    has computed with torch has more.
    """
    if multiprocessing.parent_process() is not None and "--multiprocessing-fork" not in sys.orig_argv:
        return True
    try:
        return len(os.listdir("/proc/self/task")) < 2
    except OSError:
        return True
