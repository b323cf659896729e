"""Scripts in processes of their own without the seconds in which each of them would import torch.

`command()` stands for `[sys.executable]` in a test: what follows is run by a process forked from one that has imported torch, msprobe and
what they need (server.py). `command("transformers")` has transformers and accelerate too; `command("mindspore")` is MindSpore's
interpreter, and that has been imported. All test processes of a run share one server of each kind.

A real interpreter is still right where a test is about its start or its end, about what is imported when, or about code that is compiled
for the first time. Options and variables that an interpreter reads when it starts get one by themselves.
"""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from warm_python.client import read_at_start, run, send

__all__ = ["ENVIRONMENT", "Started", "command", "read_at_start", "started"]

HERE = Path(__file__).parent
SOURCE = str(HERE.parents[1] / "src")
TORCH = ["torch", "torch._dynamo", "msprobe.pytorch"]
"""The first step of an optimizer, DDP and FSDP would import torch._dynamo in each process."""
MINDSPORE = ["mindspore", "mindspore.dataset", "mindspore.train"]
MORE = {
    "transformers": ["transformers", "transformers.models.llama.modeling_llama", "accelerate", "msprobe.pytorch.load.isolating"],
}
ENVIRONMENT = dict(os.environ)
"""As it was before the first test; tests/conftest.py imports this module."""
_holding: list[socket.socket] = []


_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))[:12]


@functools.cache
def _socket(kind: str) -> str:
    """The socket of a server that has imported this; starts it where no test process of this run has."""
    below = _socket("torch") if kind in MORE else None
    directory = Path(tempfile.gettempdir()) / f"warm-python-{os.getuid()}"  # a socket's path must be short
    directory.mkdir(mode=0o700, exist_ok=True)
    path = str(directory / f"{_RUN}-{kind}")
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _hold(path):
            Path(path).unlink(missing_ok=True)
            if below is None:
                _start(path, kind)
            else:
                with send(below, {"kind": "grow", "socket": path, "modules": MORE[kind]}, []) as connection:
                    assert connection.makefile().readline() == "ready\n"
            assert _hold(path)
    return path


def _hold(path: str) -> bool:
    """Keeps the server alive as long as this process lives, if there is one."""
    try:
        connection = send(path, {"kind": "hold"}, [])
        _holding.append(connection)
        return connection.makefile().readline() == "held\n"
    except OSError:
        return False


def _start(path: str, kind: str) -> None:
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, (SOURCE, ENVIRONMENT.get("PYTHONPATH", ""))))}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if kind == "mindspore":
        environment["GLOG_v"] = "3"  # it is read when MindSpore is imported
    interpreter, modules = (os.environ["MSPROBE_MINDSPORE_PYTHON"], MINDSPORE) if kind == "mindspore" else (sys.executable, TORCH)
    program = [interpreter, str(HERE / "server.py"), path, *modules]
    process = subprocess.Popen(program, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"


def command(kind: str = "torch") -> list[str]:
    """The beginning of a command: what follows is the arguments of an interpreter.

    Args:
        kind: what is already imported: `torch`, `mindspore`, or a key of MORE.
    """
    interpreter = os.environ["MSPROBE_MINDSPORE_PYTHON"] if kind == "mindspore" else sys.executable
    return [interpreter, "-S", "-E", str(HERE / "client.py"), _socket(kind)]


class Started:
    """A program that runs in a forked process; it is gone when the block is left.

    Attributes:
        pid: its process's number.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile()
        self.pid = int(self._answers.readline())
        assert self.pid, "these arguments or this environment need a real interpreter"

    def wait(self) -> int:
        """How it ended; negative: the signal."""
        return int(self._answers.readline())

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._connection.close()


def started(arguments: list[str], environment: dict[str, str], directory: Path, files: list[IO[str]]) -> Started:
    """Start a program, for tests that must know its process's number.

    Args:
        arguments: those of an interpreter.
        environment: all of its variables.
        directory: where it runs.
        files: what it has as its standard input, output and error.
    """
    arguments, numbers = list(map(str, arguments)), [file.fileno() for file in files]
    return Started(run(_socket("torch"), arguments, numbers, environment, str(directory)))
