"""Speed of the checksums: CRC-32 and XOR against zlib's CRC-32 and XXH3, on contiguous bytes and on other layouts.

    python benchmarks/bench_checksum.py [--threads N]

Prints gigabytes a second, the best of several repetitions; a call of a few bytes costs what the call costs. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import timeit
import zlib
from collections.abc import Callable

import torch
import xxhash

from msprobe import numerics
from msprobe.numerics import checksum

SIZES = (64, 1024, 1 << 14, 1 << 18, 1 << 22, 1 << 26)


def speed(work: Callable[[], object], nbytes: int) -> float:
    """Gigabytes a second."""
    number = max(1, min(5000, (1 << 24) // nbytes))
    work()
    return nbytes * number / min(timeit.repeat(work, number=number, repeat=5)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads for large tensors (default 1)")
    numerics.set_threads(parser.parse_args().threads)
    print(f"{'bytes':>12} {'crc32':>8} {'xor':>8} {'zlib':>8} {'xxh3':>8}")
    for nbytes in SIZES:
        data = torch.randint(0, 256, (nbytes,), dtype=torch.uint8)
        view = memoryview(data.numpy())
        at = (data.data_ptr(), 1, (nbytes,), (1,))
        works = (
            lambda at=at: checksum.crc32_of(*at),
            lambda at=at: checksum.xor_of(*at),
            lambda view=view: zlib.crc32(view),
            lambda view=view: xxhash.xxh3_64_intdigest(view),
        )
        print(f"{nbytes:>12,}", *(f"{speed(work, nbytes):>8.1f}" for work in works))
    print(f"\n{'tensor':<24} {'crc32':>8} {'copied, then zlib':>18}")
    x = torch.randn(1 << 22)
    layouts = {
        "transposed": x.view(2048, -1).t(),
        "heads (b, h, l, d)": x.view(8, 256, -1, 64).transpose(1, 2),
        "heads (b, h, d, l)": x.view(8, 256, -1, 64).permute(0, 2, 3, 1),
        "channels last": x.view(16, 32, -1, 128).permute(0, 3, 1, 2),
        "every second": x[::2],
        "one number expanded": x[:1].expand(1 << 22),
    }
    for label, tensor in layouts.items():
        nbytes = tensor.numel() * 4
        ours = speed(lambda tensor=tensor: checksum.checksum(tensor), nbytes)
        theirs = speed(lambda tensor=tensor: zlib.crc32(tensor.contiguous().numpy()), nbytes)
        print(f"{label:<24} {ours:>8.1f} {theirs:>18.1f}")
    small = torch.randn(4)
    print(f"\nchecksum() of four numbers: {min(timeit.repeat(lambda: checksum.checksum(small), number=20_000, repeat=5)) * 50:.2f} µs")


if __name__ == "__main__":
    main()
