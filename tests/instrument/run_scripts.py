"""Runs many scripts, each in a process forked from one that has imported torch: `python run_scripts.py JOBS.json`.

A job is {"directory", "script", "output"}; what the script prints goes to the file `output`, its exit code to `output`.code.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
import traceback

import torch
import torch._dynamo  # an optimizer would import it in every process
import torch.nn.parallel

import msprobe.pytorch  # noqa: F401

torch.set_num_threads(1)


def run(job: dict[str, str]) -> int:
    os.chdir(job["directory"])
    descriptor = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.argv = [job["script"]]
    sys.path.insert(0, job["directory"])
    code = 0
    try:
        runpy.run_path(job["script"], run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code


with open(sys.argv[1], encoding="utf-8") as file:
    jobs = json.load(file)
for job in jobs:
    pid = os.fork()
    if pid == 0:
        os._exit(run(job))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(job["output"] + ".code", "w", encoding="utf-8") as file:
        file.write(str(code))
