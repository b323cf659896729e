"""Where a process comes from."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap

import pytest

from msprobe.pytorch.process import maybe_forked


@pytest.mark.parametrize(("method", "expected"), [("fork", True), ("spawn", False)])
def test_a_child_of_multiprocessing(method: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")  # numpy's, which it starts when it is imported, whatever is set for torch
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(maybe_forked) is expected


def test_a_child_of_fork_and_a_process_that_computes() -> None:
    script = """
        import os
        import numpy, torch
        from msprobe.pytorch.process import maybe_forked
        torch.set_num_threads(2)
        torch.ones(1 << 20).add_(1)
        assert not maybe_forked()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if maybe_forked() else 1)
        assert os.waitpid(pid, 0)[1] == 0
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], check=True, timeout=120, env=environment)


def test_what_nobody_tells_is_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr("msprobe.pytorch.process.os.listdir", fails)
    assert maybe_forked()
