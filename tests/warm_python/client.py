"""Stands for the interpreter: `python -S -E client.py SOCKET arguments...` runs what `python arguments...` would, in a process that
server.py forks, and ends as that process does. What such a process cannot be gets an interpreter of its own."""

import json
import os
import signal
import socket
import sys

AT_START = ("PYTHON", "TORCH", "MKL_", "LD_", "MALLOC_")
"""Variables that are read when an interpreter or torch starts begin so, but for these; torch sets the last itself."""
ORDINARY = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR"}


def read_at_start(names: set) -> list:
    """Those of the variables that an interpreter or torch reads when it starts."""
    return [name for name in names if name.startswith(AT_START) and name not in ORDINARY]


def send(path: str, order: dict, files: list) -> socket.socket:
    """Give an order."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    data = json.dumps(order).encode()
    data = len(data).to_bytes(4, "big") + data
    sent = socket.send_fds(connection, [data[:4096]], files) if files else 0
    if sent < len(data):  # to send nothing would fail where the answer has come already
        connection.sendall(data[sent:])
    return connection


def run(path: str, arguments: list, files: list, environment: dict, directory: str) -> socket.socket:
    """The connection on which the number of the process and its end are told."""
    order = {"kind": "run", "arguments": arguments, "environment": environment, "directory": directory}
    return send(path, order, files)


if __name__ == "__main__":
    answers = run(sys.argv[1], sys.argv[2:], [0, 1, 2], dict(os.environ), os.getcwd()).makefile()
    pid = int(answers.readline())
    if pid == 0:
        os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(answers.readline() or 1)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
