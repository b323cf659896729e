"""Imports torch or MindSpore once and forks a process for every program that it is given: a test that runs a script costs little.

Run as a program, not a test: `python server.py SOCKET`. A connection to the socket brings one order, JSON with its length in front:

`run`       arguments of an interpreter, environment, directory, and three open files with it; two lines answer: the number of the new
            process, and how it ended (negative: the signal). Who closes the connection earlier ends the process. 0 instead of a number:
            options or variables that an interpreter reads when it starts, so that it takes a real one.
`grow`      a process is forked that imports more modules and does the same at a socket of its own; the line `ready` answers.
`hold`      the line `held` answers. When the last of these connections is closed, the server ends.

A program sees what it would see in an interpreter of its own, but for: torch is loaded, one more frame is below its own, and objects
that live until the end are not taken apart (they are where WARM_PYTHON_END is "whole").
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
import types
from typing import Any, NoReturn

from client import read_at_start

Order = dict[str, Any]
ENVIRONMENT = dict(os.environ)


def needs_a_real_one(arguments: list[str], environment: dict[str, str]) -> bool:
    """Whether a forked process would not be what these ask for."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-c", "-m", "-")):
        return True
    if "MSPROBE_RUN" in environment and os.path.basename(arguments[0]) != "armed.py":
        return True  # it is the start of an interpreter that `msprobe run` works with; armed.py stands for it
    return any(ENVIRONMENT.get(name) != environment.get(name) for name in read_at_start({*ENVIRONMENT, *environment}))


def receive(connection: socket.socket) -> tuple[Order, list[int]]:
    """One order and the open files that came with it."""
    data, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    length = int.from_bytes(data[:4], "big")
    data = data[4:]
    while len(data) < length:
        more = connection.recv(1 << 16)
        if not more:
            raise EOFError
        data += more
    return json.loads(data), files


class Server:
    """Waits for orders, and for the ends of the processes it has forked."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(path)
        self.listening.listen(64)
        self.woken, self.waking = socket.socketpair()
        self.waking.setblocking(False)
        self.woken.setblocking(False)
        self.running: dict[int, socket.socket] = {}
        self.held: list[socket.socket] = []
        self.was_held = False

    def serve(self) -> Order:
        """Returns in a forked process, with what it has to do."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.waking.fileno())
        while not self._over():
            waiting = [self.listening, self.woken, *self.held, *self.running.values()]
            ready = select.select(waiting, [], [], None if self.held or self.running or not self.was_held else 0)[0]
            if self.listening in ready:
                order = self._accept()
                if order is not None:
                    return order
            if self.woken in ready:
                self.woken.recv(4096)
            self.held = [connection for connection in self.held if connection not in ready]
            self._reap([pid for pid, connection in self.running.items() if connection in ready])
        os._exit(0)

    def _over(self) -> bool:
        """Whether nobody needs the server any more; then its socket is gone. Who is about to need it has the lock."""
        if self.held or self.running or not self.was_held:
            return False
        with open(os.path.join(os.path.dirname(self.path), "lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.05)
                return False
            os.unlink(self.path)
            return True

    def _accept(self) -> Order | None:
        connection, _ = self.listening.accept()
        try:
            order, files = receive(connection)
        except (OSError, EOFError, ValueError):
            connection.close()
            return None
        if order["kind"] == "hold":
            self.held.append(connection)
            self.was_held = True
            connection.sendall(b"held\n")
            return None
        if order["kind"] == "run" and needs_a_real_one(order["arguments"], order["environment"]):
            for descriptor in files:
                os.close(descriptor)
            connection.sendall(b"0\n")
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            self._forget()
            return {**order, "files": files, "connection": connection}
        for descriptor in files:
            os.close(descriptor)
        if order["kind"] == "run":
            self.running[pid] = connection
            with contextlib.suppress(OSError):
                connection.sendall(f"{pid}\n".encode())
        else:
            connection.close()
        return None

    def _reap(self, abandoned: list[int]) -> None:
        for pid in abandoned:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            connection = self.running.pop(pid, None)
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                connection.close()

    def _forget(self) -> None:
        """In a forked process: nothing of the server stays."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for connection in [self.listening, self.woken, self.waking, *self.held, *self.running.values()]:
            connection.close()


def preload(modules: list[str]) -> None:
    """Import them; what lives now is left alone by the collector, so that forked processes go on sharing the memory."""
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def program(order: Order) -> tuple[types.CodeType | None, dict[str, Any], str]:
    """What the arguments name: code and the globals it runs in, or the name of a module. Sets the process up for it."""
    for number, descriptor in enumerate(order["files"]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    order["connection"].close()
    environment = order["environment"]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(order["directory"])
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False, errors=errors, buffering=buffering)  # noqa: SIM115
        for number, mode, errors, buffering in ((0, "r", "strict", -1), (1, "w", "strict", -1), (2, "w", "backslashreplace", 1))
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    if environment.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    added = [os.path.abspath(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*added, *INSTALLED]
    _as_if_fresh()
    kind, *arguments = order["arguments"]
    sys.orig_argv = [sys.executable, *order["arguments"]]
    if kind == "-m":
        sys.path.insert(0, order["directory"])
        sys.argv = ["-m", *arguments[1:]]
        return None, {}, arguments[0]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-c":
        source, name, below = arguments.pop(0), "<string>", ""
        sys.argv = ["-c", *arguments]
    elif kind == "-":
        source, name, below = sys.stdin.read(), "<stdin>", ""
        main.__file__ = name
        sys.argv = ["-", *arguments]
    else:
        with open(kind, encoding="utf-8") as file:
            source = file.read()
        name, below = os.path.abspath(kind), os.path.dirname(os.path.abspath(kind))
        sys.argv = [kind, *arguments]
        main.__file__ = name
    sys.path.insert(0, below)
    return compile(source, name, "exec", dont_inherit=True), main.__dict__, ""


def _as_if_fresh() -> None:
    """What an interpreter draws or reads when it starts."""
    import msprobe.log

    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules and os.environ.get("OMP_NUM_THREADS", "").isdecimal():
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    logging.getLogger("msprobe").setLevel(msprobe.log._level_from_environment())


def leave(ended: BaseException | None) -> NoReturn:
    """What an interpreter does at its end, but for taking every object apart, which costs more than many a program."""
    code = 0
    if isinstance(ended, SystemExit):
        if ended.code is not None and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
        code = 0 if ended.code is None else ended.code if isinstance(ended.code, int) else 1
    elif ended is not None:
        trace = ended.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            trace = trace.tb_next
        sys.excepthook(type(ended), ended.with_traceback(trace), trace)
        code = 1
    if os.environ.get("WARM_PYTHON_END") == "whole" and not isinstance(ended, KeyboardInterrupt):
        sys.exit(code)
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if isinstance(ended, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


INSTALLED = [
    path for path in sys.path if path not in (os.path.dirname(os.path.abspath(__file__)), *os.environ.get("PYTHONPATH", "").split(":"))
]
server = Server(sys.argv[1])
preload(sys.argv[2:])
print("ready", flush=True)
order = server.serve()
while order["kind"] == "grow":
    server = Server(order["socket"])
    preload(order["modules"])
    order["connection"].sendall(b"ready\n")
    order["connection"].close()
    order = server.serve()
ended = None
try:
    code, names, module = program(order)
    if code is None:
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]
    else:
        exec(code, names)
except BaseException as error:
    ended = error
leave(ended)
