"""Imports torch and transformers once and forks a process for every script, so that a run of `msprobe isolate` in a test costs little.

The command in such a test is `python script_client.py SOCKET script.py ...`: the client hands over arguments, environment, directory and
the three standard files, and ends as the script does. Run as a program, not a test: `python script_server.py SOCKET`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import socket
import sys
import traceback

import torch
import torch._dynamo  # what starts later would import it in every process
import torch.nn.parallel

import msprobe.pytorch
import msprobe.pytorch.load.isolating  # noqa: F401

with contextlib.suppress(ImportError):
    import transformers.models.llama.modeling_llama  # noqa: F401

torch.set_num_threads(1)


def become(job: dict[str, object], descriptors: list[int]) -> None:
    """The forked process runs the script as if it had been started by itself."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(job["environment"])  # type: ignore[call-overload]
    os.chdir(str(job["directory"]))
    sys.argv = list(job["arguments"])  # type: ignore[call-overload]
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)  # taking transformers apart would cost seconds


def main() -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(sys.argv[1])
    listening.listen()
    print("ready", flush=True)
    running: dict[int, socket.socket] = {}
    listening.settimeout(0.02)
    while True:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            connection = None
        if connection is not None:
            connection.settimeout(10)
            message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
            pid = os.fork()
            if pid == 0:
                listening.close()
                connection.close()
                become(json.loads(message), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            running[pid] = connection
        for pid, waiting in list(running.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                waiting.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                waiting.close()
                del running[pid]


if __name__ == "__main__":
    main()
