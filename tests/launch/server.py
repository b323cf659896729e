"""Imports torch once and forks a process for every script, so that a script in a test costs little; program.py is its client.

A forked process that finds the orders of `msprobe run` in its environment does what the import of torch would have done there.
Run as a program, not a test: `python server.py SOCKET`.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import traceback

import torch
import torch._dynamo  # optimizers import it when they are made

import msprobe.launch.watch  # noqa: F401

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
    import atexit

    code = 0
    try:
        if "MSPROBE_RUN" in os.environ:
            from msprobe.launch.arming import arm

            arm()
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


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
                waiting.sendall(f"{pid} {os.waitstatus_to_exitcode(status)}\n".encode())
                waiting.close()
                del running[pid]


if __name__ == "__main__":
    main()
