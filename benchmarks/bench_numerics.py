"""Cost of the statistics of one tensor: the kernels against four torch calls, and of the metrics of a pair.

    python benchmarks/bench_numerics.py [--threads N]

Prints microseconds, the best of several repetitions, one table per dtype. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import timeit
from collections.abc import Callable

import torch

from msprobe import numerics
from msprobe.numerics import pairs

SIZES = (1, 32, 1024, 32_768, 1 << 20, 1 << 24)
TYPES = ("float32", "bfloat16", "float16", "float64", "int64", "float8_e4m3fn", "complex64")


def best(work: Callable[[], object], numel: int) -> float:
    """Microseconds of one call."""
    number = max(1, 20_000 // (1 + numel // 64))
    work()
    return min(timeit.repeat(work, number=number, repeat=7)) / number * 1e6


def torch_statistics(tensor: torch.Tensor) -> Callable[[], object] | None:
    """What one would write without kernels; None where torch cannot do it for the dtype."""

    def work() -> object:
        t = tensor.abs() if tensor.is_complex() else tensor if tensor.is_floating_point() else tensor.to(torch.float32)
        return t.max().item(), t.min().item(), t.mean().item(), torch.norm(t).item()

    try:
        work()
    except (RuntimeError, NotImplementedError):
        return None
    return work


def make(dtype: str, numel: int) -> torch.Tensor:
    if dtype == "int64":
        return torch.randint(-1000, 1000, (numel,))
    if dtype == "complex64":
        return torch.randn(numel, dtype=torch.complex64)
    return torch.randn(numel).to(getattr(torch, dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    threads = parser.parse_args().threads
    numerics.set_threads(threads)
    torch.set_num_threads(threads)
    print(f"kernels: {numerics.HAVE_KERNELS}, threads: {threads}")
    for dtype in TYPES:
        print(f"\n{dtype:>14} {'ours':>10} {'every 2nd':>10} {'torch':>10} {'ratio':>7} {'GB/s':>7} {'pair':>10}   (microseconds)")
        for numel in SIZES:
            print_row(dtype, numel)


def print_row(dtype: str, numel: int) -> None:
    code = numerics.CODE[dtype]
    tensor, other = make(dtype, numel), make(dtype, numel)
    at, of = tensor.data_ptr(), other.data_ptr()
    ours = best(lambda: numerics.summarize(at, code, numel), numel)
    strided = best(lambda: numerics.summarize_strided(at, code, (max(1, numel // 2),), (2,)), numel)
    pair = best(lambda: pairs.compare_pair(at, code, of, code, numel), numel)
    baseline = torch_statistics(tensor)
    theirs = best(baseline, numel) if baseline else float("nan")
    speed = numel * tensor.element_size() / ours / 1e3
    print(f"{numel:>14,} {ours:>10.2f} {strided:>10.2f} {theirs:>10.2f} {theirs / ours:>6.1f}x {speed:>7.1f} {pair:>10.2f}")


if __name__ == "__main__":
    main()
