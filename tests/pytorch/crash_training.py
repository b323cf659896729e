"""A training that is to be ended from outside or by itself. Run as a program, not a test.

    crash_training.py DUMP_PATH LOG WAY AFTER LEVEL TASK PAUSE

After each call that the user's code has back, a line `MONOTONIC_TIME STEP NAME` goes to LOG (unbuffered). AFTER seconds later the
process ends in the way asked for; `outside` waits to be killed. Each iteration sleeps for PAUSE seconds.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import torch
import torch.nn as nn

from msprobe.pytorch import PrecisionDebugger


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.out(torch.relu(self.fc(x)))


def end(way: str) -> None:
    if way == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
    elif way == "SIGINT":
        os.kill(os.getpid(), signal.SIGINT)
    elif way == "_exit":
        os._exit(7)
    elif way == "abort":
        os.abort()
    elif way == "exit":
        os.kill(os.getpid(), signal.SIGUSR1)


def main() -> None:
    dump_path, log_path, way, after, level, task, pause = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    debugger = PrecisionDebugger(task=task, dump_path=dump_path, level=level)
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
    timer = threading.Timer(float(after), end, (way,))
    timer.daemon = True
    step = 0

    def note(name: str) -> None:
        os.write(log, f"{time.monotonic():.4f} {step} {name}\n".encode())

    def finished(module: nn.Module, args: object, output: torch.Tensor) -> None:
        index = counts[module] = counts.get(module, -1) + 1
        note(f"Module.{names[module]}.Block.forward.{index}")
        output.register_hook(lambda gradient: note(f"Module.{names[module]}.Block reached by backward"))

    counts: dict[nn.Module, int] = {}
    names = {module: name for name, module in model.named_children()}
    started = False
    while True:
        counts.clear()
        debugger.start(model)
        if not started:
            started = True
            note("started")
            timer.start()
        for _ in range(400 if step % 2 else 20):  # steps of a moment, and steps that last
            x = torch.randn(8, 16)
            for block in model:
                x = block(x)
                finished(block, None, x)
            loss = x.pow(2).mean()
            note("pow")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            note("iteration")
            time.sleep(float(pause))
        debugger.stop()
        debugger.step()
        note("step over")
        step += 1


if __name__ == "__main__":
    main()
