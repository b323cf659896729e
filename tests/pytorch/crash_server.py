"""Imports torch once and forks a process for each job read from standard input, so that a test that ends a process costs little.

A job is a line of JSON: `path` or `source` of the program, `arguments`, and the files `out` and `err`. Two lines answer: the process's
number as soon as there is one, and its exit status (negative: the signal) once it is gone. Run as a program, not a test.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

import torch

import msprobe.pytorch  # noqa: F401

torch.set_num_threads(1)
# The first step of an optimizer imports a second's worth of modules.
torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1).step()


def become(job: dict[str, object]) -> None:
    """The forked process runs the program as if it had been started by itself."""
    for descriptor, path in ((0, os.devnull), (1, str(job["out"])), (2, str(job["err"]))):
        opened = os.open(path, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = ["program", *map(str, job["arguments"])]  # type: ignore[call-overload]
    if "path" in job:
        runpy.run_path(str(job["path"]), run_name="__main__")
    else:
        exec(compile(str(job["source"]), "<program>", "exec"), {"__name__": "__main__"})
    sys.exit(0)


while True:
    line = sys.stdin.readline()
    if not line:
        break
    child = os.fork()
    if child == 0:
        become(json.loads(line))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
