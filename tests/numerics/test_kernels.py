"""What only the C kernels have: several threads, several instruction sets, the floating-point environment of the caller."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from msprobe.numerics import CODE, DTYPES

from . import exact
from .callers import wrong_answers

LARGE = 1_300_007  # more than a million: shared among threads, also nine tenths of it


@pytest.fixture
def restored(kernels):
    path, threads = kernels._paths()[0], kernels.set_threads(1)
    kernels.share_threads(None)
    yield kernels
    kernels.set_threads(threads)
    kernels._force_path(path)


def bits(values: tuple) -> list:
    return [struct.pack("<d", v) if isinstance(v, float) else v for v in values]


def results(kernels, tensor: torch.Tensor, other: torch.Tensor) -> list:
    name = str(tensor.dtype).removeprefix("torch.")
    at, code, n = tensor.data_ptr(), CODE[name], tensor.numel()
    return [
        bits(kernels.summarize(at, code, n)),
        bits(kernels.summarize_strided(at, code, (n // 30, 3, 9), (30, 10, 1))),
        bits(kernels.summarize_strided(at, code, (n // 30, 3, 9), (30, 1, 3))),
        bits(kernels.compare_pair(at, code, other.data_ptr(), code, n)),
    ]


@pytest.mark.parametrize("name", DTYPES)
def test_every_instruction_set_gives_the_same_bits(restored, name: str) -> None:
    for make in (exact.finite_random, exact.random_bits):
        tensor, other = make(name, 40_011, 1), make(name, 40_011, 2)
        seen = []
        for path in restored._paths():
            restored._force_path(path)
            seen.append(results(restored, tensor, other))
        assert all(s == seen[0] for s in seen)


def test_no_instruction_set_rounds_squares_otherwise(restored) -> None:
    """Many short sums: in a long one a fused multiply-add seldom shows in the last bit."""
    numbers = exact.finite_random("float64", 6600)
    seen = []
    for path in restored._paths():
        restored._force_path(path)
        seen.append([bits(restored.summarize(numbers.data_ptr() + 8 * k, CODE["float64"], 33)) for k in range(0, 6600, 33)])
    assert all(s == seen[0] for s in seen)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64", "int64", "complex64", "float8_e4m3fn", "bool"])
def test_every_number_of_threads_gives_the_same_bits(restored, name: str) -> None:
    tensor, other = exact.finite_random(name, LARGE, 1), exact.finite_random(name, LARGE, 2)
    seen = []
    for threads in (1, 2, 3, 7):
        restored.set_threads(threads)
        seen += [results(restored, tensor, other) for _ in range(3)]
    assert all(s == seen[0] for s in seen)


def test_the_rescaling_pass_is_shared_among_threads_too(restored) -> None:
    tensor = exact.finite_random("float64", LARGE, 1) * 1e200
    alone = results(restored, tensor, tensor * 2)
    restored.set_threads(4)
    assert results(restored, tensor, tensor * 2) == alone


def test_large_tensors_are_right(restored) -> None:
    restored.set_threads(2)
    numbers = np.random.default_rng(0).standard_normal(LARGE).astype(np.float32)
    high, low, mean, norm = restored.summarize(numbers.ctypes.data, CODE["float32"], LARGE)
    wide = numbers.astype(np.longdouble)
    assert (high, low) == (numbers.max(), numbers.min())
    assert exact.close(mean, float(wide.mean()), 1.0, 1e-15)
    assert norm == pytest.approx(float(np.sqrt((wide * wide).sum())), rel=1e-14)


def test_callers_on_many_threads_do_not_disturb_each_other(restored) -> None:
    restored.set_threads(3)
    assert not wrong_answers(restored, 6, LARGE)


def test_flush_to_zero_neither_changes_the_numbers_nor_is_changed(restored) -> None:
    single, double, smallest = np.full(LARGE, 1e-40, np.float32), np.full(LARGE, 5e-324), 5e-324
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormal numbers")
    try:
        got = []
        for threads in (1, 3):
            restored.set_threads(threads)
            got.append(restored.summarize(single.ctypes.data, CODE["float32"], LARGE)[0])
            got.append(restored.summarize(single.ctypes.data, CODE["float32"], 10)[0])
            got.append(restored.summarize(double.ctypes.data, CODE["float64"], LARGE)[2])
        still_flushed = (torch.tensor([1e-310], dtype=torch.float64) * 1).tolist()
    finally:
        torch.set_flush_denormal(False)
    assert got == [float(single[0]), float(single[0]), smallest] * 2
    assert still_flushed == [0.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_can_use_the_kernels_whatever_the_parent_was_doing() -> None:
    script = """
        import os, signal, sys, threading
        import numpy as np
        from msprobe.numerics import CODE, set_threads, summarize
        set_threads(3)
        big = np.ones(3 << 20, np.float32)
        run = lambda: summarize(big.ctypes.data, CODE["float32"], big.size)
        run()
        done = threading.Event()
        def busy():
            while not done.is_set():
                run()
        thread = threading.Thread(target=busy)
        thread.start()
        codes = []
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                ok = all(run()[:3] == (1.0, 1.0, 1.0) for _ in range(3))
                os._exit(0 if ok else 1)
            codes.append(os.waitpid(pid, 0)[1])
        done.set()
        thread.join()
        assert run()[:3] == (1.0, 1.0, 1.0)
        sys.exit(any(codes))
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], check=True, timeout=120, env=environment)


def test_settings_are_checked(restored) -> None:
    with pytest.raises(ValueError, match="0; it must be 1"):
        restored.set_threads(0)
    restored.set_threads(5)
    assert restored.set_threads(1) == 5
    with pytest.raises(ValueError, match="'sse9'"):
        restored._force_path("sse9")
    with pytest.raises(TypeError, match="3 positional"):
        restored.summarize(1, 2)
    with pytest.raises(TypeError, match="5 positional"):
        restored.compare_pair(1, 2)
