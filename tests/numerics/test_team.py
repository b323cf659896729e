"""Large tensors are read by the threads that torch computes with."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from msprobe.numerics import CODE, DTYPES, share_threads
from msprobe.pytorch.torch_internals import COMPUTING_LIBRARY

from . import exact
from .callers import wrong_answers
from .test_kernels import LARGE, results


def _is_there() -> bool:
    there = share_threads(COMPUTING_LIBRARY)
    share_threads(None)
    return there


pytestmark = pytest.mark.skipif(not _is_there(), reason="this torch has no OpenMP runtime that gives its threads up before a fork")


@pytest.fixture
def team(kernels):
    threads, before = torch.get_num_threads(), kernels.set_threads(2)
    torch.set_num_threads(3)
    assert kernels.share_threads(COMPUTING_LIBRARY)
    yield kernels
    kernels.share_threads(None)
    kernels.set_threads(before)
    torch.set_num_threads(threads)


def in_a_process_of_its_own(script: str, **environment: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1", **environment}
    begin = """
        import os, signal, sys, threading, time
        import numpy as np
        import torch
        from msprobe.numerics import CODE, set_threads, share_threads, summarize
        from msprobe.pytorch.torch_internals import COMPUTING_LIBRARY

        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(3)

        def threads():
            return len(os.listdir("/proc/self/task"))

        big = torch.from_numpy(np.ones(3 << 20, np.float32))  # without a thread of torch's

        def run(tensor=big):
            return summarize(tensor.data_ptr(), CODE["float32"], tensor.numel())

        def settle_at(number):
            "Threads that have ended are listed for a moment."
            for _ in range(2000):
                if threads() == number:
                    return True
                time.sleep(0.001)

        def run_until_shared():
            "On a busy machine a tensor may be read by one thread alone, but not again and again."
            before = threads()
            for _ in range(3000):
                run(big[:131_072])
                if threads() > before:
                    return
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


@pytest.mark.parametrize("numel", [131_071, 131_072, 131_073, 1 << 18])
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
        run(big[:131_071])
        assert threads() == alone
        run_until_shared()
        assert threads() == alone + 2, "torch was told to use 3"
        big.add_(0), run(), (big.view(-1, 1024) @ big[:1 << 20].view(1024, -1)), run()
        assert threads() == alone + 2, "torch had to start threads of its own"
        torch.set_num_threads(2)
        run(), big.add_(0), run()
        assert settle_at(alone + 1)
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


def test_a_forked_child_computes_where_the_parent_only_recorded() -> None:
    """Without msprobe the parent would have had no thread that the child could wait for."""
    in_a_process_of_its_own("""
        set_threads(2)
        assert share_threads(COMPUTING_LIBRARY)
        for _ in range(3):
            alone = threads()
            run_until_shared()
            assert threads() == alone + 2
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                os._exit(0 if (big + 1).sum().item() == 2 * big.numel() else 1)
            assert os.waitpid(pid, 0)[1] == 0
            assert settle_at(alone), "taken up again only when needed"
        run_until_shared(), big.add_(0), run()
        assert threads() == alone + 2
    """)


def test_where_no_thread_can_be_started_none_is_asked_for() -> None:
    """The runtime would end the process."""
    in_a_process_of_its_own("""
        import resource
        set_threads(2)
        assert share_threads(COMPUTING_LIBRARY)
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20),) * 2)
        alone = threads()
        for _ in range(20):
            assert run()[:3] == (1.0, 1.0, 1.0)
        assert threads() <= alone + 1, "one of the kernels' own may fit in"
    """)


def test_each_thread_uses_as_many_as_torch_was_told() -> None:
    in_a_process_of_its_own(
        """
        set_threads(1 + 1)
        assert share_threads(COMPUTING_LIBRARY)
        torch.set_num_threads(1)
        run()
        alone, stay, done = threads(), threading.Event(), threading.Barrier(5)

        def work():
            run()
            done.wait()
            stay.wait()

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        done.wait()
        settled = settle_at(alone + 4)
        stay.set()
        assert settled, "OpenMP's own default is 8"
        """,
        OMP_NUM_THREADS="8",
    )


@pytest.mark.parametrize("size", [5, 64, 300])
def test_more_threads_than_processors(team, size: int) -> None:
    """Waiting for them is given up after a while, more than can be tried are not used; the numbers are the same."""
    torch.set_num_threads(size)
    tensor = exact.finite_random("float32", 1 << 21, 1)
    shared = {team.summarize(tensor.data_ptr(), CODE["float32"], tensor.numel()) for _ in range(60)}
    team.set_threads(1)
    assert shared == {team.summarize(tensor.data_ptr(), CODE["float32"], tensor.numel())}


def test_callers_on_many_threads_do_not_disturb_each_other(team) -> None:
    assert not wrong_answers(team, 4, LARGE)


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
