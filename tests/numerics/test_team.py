"""Large tensors are read by the threads that torch computes with."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch

from msprobe.numerics import CODE, DTYPES
from msprobe.pytorch.torch_internals import COMPUTING_LIBRARY

from . import exact
from .test_kernels import LARGE, results

pytestmark = pytest.mark.skipif(not os.path.exists(COMPUTING_LIBRARY), reason="this torch is no wheel for Linux")


@pytest.fixture
def team(kernels):
    threads, before = torch.get_num_threads(), kernels.set_threads(2)
    torch.set_num_threads(3)
    assert kernels.share_threads(COMPUTING_LIBRARY)
    yield kernels
    kernels.share_threads(None)
    kernels.set_threads(before)
    torch.set_num_threads(threads)


def in_a_process_of_its_own(script: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    begin = """
        import os, signal, sys, threading
        import numpy as np
        import torch
        from msprobe.numerics import CODE, set_threads, share_threads, summarize
        from msprobe.pytorch.torch_internals import COMPUTING_LIBRARY

        torch.set_num_threads(3)

        def threads():
            return len(os.listdir("/proc/self/task"))

        big = torch.from_numpy(np.ones(3 << 20, np.float32))  # without a thread of torch's

        def run(tensor=big):
            return summarize(tensor.data_ptr(), CODE["float32"], tensor.numel())
    """
    code = textwrap.dedent(begin) + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=120, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", DTYPES)
def test_the_bits_are_those_of_one_thread(team, name: str) -> None:
    tensor, other = exact.finite_random(name, LARGE, 1), exact.finite_random(name, LARGE, 2)
    shared = [results(team, tensor, other) for _ in range(3)]
    team.set_threads(1)
    assert shared == [results(team, tensor, other)] * 3


@pytest.mark.parametrize("numel", [49_151, 49_152, 49_153, 65_536, 1 << 18])
def test_the_least_that_is_shared(team, numel: int) -> None:
    tensor = exact.finite_random("float32", numel, 1)
    shared = team.summarize(tensor.data_ptr(), CODE["float32"], numel)
    team.set_threads(1)
    assert shared == team.summarize(tensor.data_ptr(), CODE["float32"], numel)


def test_it_is_torchs_own_threads_that_read() -> None:
    in_a_process_of_its_own("""
        set_threads(2)
        assert share_threads(COMPUTING_LIBRARY)
        alone = threads()
        run(big[:49_151])
        assert threads() == alone
        run(big[:49_152])
        assert threads() == alone + 2, "torch was told to use 3"
        big.add_(0), run(), (big.view(-1, 1024) @ big[:1 << 20].view(1024, -1)), run()
        assert threads() == alone + 2, "torch had to start threads of its own"
        torch.set_num_threads(2)
        run(), big.add_(0), run()
        assert threads() == alone + 1
    """)


def test_where_torch_computes_on_one_thread_the_kernels_use_their_own() -> None:
    in_a_process_of_its_own("""
        set_threads(2)
        assert share_threads(COMPUTING_LIBRARY)
        torch.set_num_threads(1)
        alone = threads()
        run()
        assert threads() == alone + 1
    """)


def test_one_thread_means_one() -> None:
    in_a_process_of_its_own("""
        set_threads(1)
        assert share_threads(COMPUTING_LIBRARY)
        alone = threads()
        run()
        assert threads() == alone
    """)


def test_a_forked_child_has_no_team() -> None:
    in_a_process_of_its_own("""
        set_threads(2)
        assert share_threads(COMPUTING_LIBRARY)
        big.add_(0), run()
        done = threading.Event()

        def busy():
            while not done.is_set():
                run()

        thread = threading.Thread(target=busy)
        thread.start()
        codes = []
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                right = all(run()[:3] == (1.0, 1.0, 1.0) for _ in range(3))
                again = share_threads(COMPUTING_LIBRARY)
                os._exit(0 if right and not again and run()[:3] == (1.0, 1.0, 1.0) else 1)
            codes.append(os.waitpid(pid, 0)[1])
        done.set()
        thread.join()
        assert run()[:3] == (1.0, 1.0, 1.0)
        assert not any(codes), codes
    """)


def test_callers_on_many_threads_do_not_disturb_each_other(team) -> None:
    arrays = [np.full(LARGE, k, np.float32) for k in range(4)]
    wrong: list[object] = []

    def work(k: int) -> None:
        for _ in range(10):
            got = team.summarize(arrays[k].ctypes.data, CODE["float32"], LARGE)
            if got[:3] != (k, k, k):
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_flush_to_zero_of_its_threads_is_as_before() -> None:
    in_a_process_of_its_own("""
        if not torch.set_flush_denormal(True):
            sys.exit(0)  # this CPU cannot
        set_threads(2)
        assert share_threads(COMPUTING_LIBRARY)
        small = torch.ones(3 << 20).mul_(1e-30)
        torch.set_flush_denormal(False)
        small.mul_(1e-10)
        assert run(small)[0] > 0
        before = (small * 0.5).count_nonzero()
        torch.set_flush_denormal(True)
        for _ in range(3):
            assert run(small)[0] > 0, "a thread of the team flushed"
        torch.set_flush_denormal(False)
        assert (small * 0.5).count_nonzero() == before
    """)


def test_what_is_no_such_library(kernels, tmp_path) -> None:
    assert not kernels.share_threads(str(tmp_path / "libnone.so"))
    assert not kernels.share_threads(kernels.__file__), "loaded, and needs no OpenMP"
    with pytest.raises(TypeError):
        kernels.share_threads(3)
    with pytest.raises(ValueError, match="null"):
        kernels.share_threads("a\0b")
