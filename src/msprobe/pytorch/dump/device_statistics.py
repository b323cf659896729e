"""Statistics and checksums of tensors that are not in host memory: computed where they are, by operations that nobody waits for.

`launch` and `launch_xor` give small tensors on the device; `read` copies the results of many of them to the host at once, which waits.
No complex tensors under `launch` but their magnitudes, and no sparse ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

Statistics = tuple[Any, Any, Any, Any]
_SIGN = 1 << 63
_INTEGERS_BEYOND_INT64 = torch.uint64


class Launched(NamedTuple):
    """What will be known of one tensor: `parts` are one-dimensional tensors on its device.

    kind: `bool` (any, all), `int` and `uint64` (max, min; mean, norm), `float` (max, min, mean, norm), `xor` (one word).
    """

    kind: str
    parts: tuple[torch.Tensor, ...]


def launch(tensor: torch.Tensor) -> Launched:
    """Begin to compute Max, Min, Mean and Norm of a strided tensor that is not empty; accumulated in float64 where the device has it."""
    if tensor.dtype == torch.bool:
        return Launched("bool", (torch.stack([tensor.any(), tensor.all()]),))
    wide = torch.float32 if tensor.device.type == "mps" else torch.float64
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj()).to(wide).norm(dim=-1)
    if not tensor.is_floating_point():
        as_float = tensor.to(wide)
        kind, exact = "int", tensor.to(torch.int64)  # torch has no max of the larger unsigned types
        if tensor.dtype == _INTEGERS_BEYOND_INT64:
            kind, exact = "uint64", tensor.view(torch.int64) ^ -_SIGN  # moved down by 2**63, the order stays
        extremes = torch.stack([exact.max(), exact.min()])
        return Launched(kind, (extremes, torch.stack([as_float.mean(), torch.linalg.vector_norm(as_float)])))
    if tensor.element_size() == 1:
        tensor = tensor.to(torch.float32)
    total, norm = tensor.sum(dtype=wide), torch.linalg.vector_norm(tensor, dtype=wide)
    return Launched("float", (torch.stack([tensor.amax().to(wide), tensor.amin().to(wide), total / tensor.numel(), norm]),))


def launch_xor(tensor: torch.Tensor) -> Launched:
    """Begin to add up the 64-bit words of a strided tensor that is not empty by XOR; takes the tensor's memory once more."""
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    raw = tensor.contiguous().reshape(-1).view(torch.uint8)
    if raw.numel() % 8 or raw.storage_offset() % 8:
        raw = torch.cat([raw, raw.new_zeros(-raw.numel() % 8)])
    words = raw.view(torch.int64)
    while words.numel() > 1:
        half = words.numel() // 2
        folded = words.narrow(0, 0, half) ^ words.narrow(0, half, half)
        words = torch.cat([folded, words.narrow(0, 2 * half, 1)]) if words.numel() % 2 else folded
    return Launched("xor", (words,))


def read(batch: Sequence[Launched]) -> list[Statistics]:
    """The results, in the order of the batch: (Max, Min, Mean, Norm); for an XOR (text, None, None, None). One copy for each device and
    dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for launched in batch:
        for part in launched.parts:
            groups.setdefault((part.device, part.dtype), []).append(part)
    numbers = {key: iter(torch.cat(parts).cpu().tolist()) for key, parts in groups.items()}
    found: list[Statistics] = []
    for kind, parts in batch:
        values = [next(numbers[part.device, part.dtype]) for part in parts for _ in range(part.numel())]
        if kind == "bool":
            found.append((values[0], values[1], None, None))
        elif kind == "xor":
            found.append((f"0x{values[0] & 0xFFFFFFFFFFFFFFFF:016x}", None, None, None))
        else:
            up = _SIGN if kind == "uint64" else 0
            found.append((values[0] + up, values[1] + up, values[2], values[3]) if up else (values[0], values[1], values[2], values[3]))
    return found
