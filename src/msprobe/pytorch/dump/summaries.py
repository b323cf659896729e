"""What a tensor's record holds beside its structure, by `summary_mode`: statistics, statistics and a CRC-32, or an XOR."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import Any

import torch

from msprobe import numerics
from msprobe.numerics.checksum import checksum, crc32_combine, xor_checksum

_CODE = {getattr(torch, name): code for name, code in numerics.CODE.items() if hasattr(torch, name)}


class Holds(IntEnum):
    """What a record holds; the numbers are those of the last element of a row in the table of `numerics.describe`."""

    STATISTICS = 0
    MD5 = 1
    """Statistics, and the CRC-32 under `md5`."""
    XOR = 2
    """The XOR of the 64-bit words under `md5`, and no statistics."""
    NULLS = 3
    """Four nulls in place of the statistics."""


OF_MODE = {"statistics": Holds.STATISTICS, "md5": Holds.MD5, "xor": Holds.XOR}
"""`summary_mode` -> what records hold."""
Table = dict[Any, Any]
"""dtype -> (class, code, dtype's name, what a record holds); and "exchange" where torch tells programs in C where a tensor lies."""


@cache
def table(holds: Holds, complex_statistics: bool = True) -> Table:
    """The table for `numerics.describe`.

    Args:
        holds: what records hold.
        complex_statistics: False puts four nulls in place of the statistics of complex tensors.
    """
    of_complex = Holds.NULLS if holds is Holds.STATISTICS and not complex_statistics else holds
    rows: Table = {d: ("torch.Tensor", code, str(d), int(of_complex if d.is_complex else holds)) for d, code in _CODE.items()}
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):  # from 2.10 on
        rows["exchange"] = True
    return rows


def skeleton(kind: str, dtype: Any, shape: Any, requires_grad: bool, holds: Holds) -> dict[str, Any]:
    """A record without values: all keys in their order, None for each of the values."""
    record: dict[str, Any] = {"type": kind, "dtype": dtype, "shape": shape}
    if holds is Holds.XOR:
        record["md5"] = None
    else:
        record.update(Max=None, Min=None, Mean=None, Norm=None)
    record["requires_grad"] = requires_grad
    if holds is Holds.MD5:
        record["md5"] = None
    return record


def digest(tensor: torch.Tensor, holds: Holds) -> str | None:
    """The checksum of a tensor of any layout in host memory: of its bytes; of a sparse one of its indices (coalesced), then its values.

    None for one without memory, and for the XOR of nothing.
    """
    if holds is Holds.XOR:
        found = [int(text, 16) for text in map(xor_checksum, _parts(tensor)) if text is not None]
        value = 0
        for one in found:
            value ^= one
        return f"0x{value:016x}" if found else None
    crc = 0
    for part in _parts(tensor):
        text = checksum(part)
        if text is None:
            return None
        crc = crc32_combine(crc, int(text, 16), part.numel() * part.element_size())
    return f"{crc:08x}"


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The strided tensors that hold all that a tensor stores."""
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        yield tensor.indices()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield tensor.crow_indices()
        yield tensor.col_indices()
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield tensor.ccol_indices()
        yield tensor.row_indices()
    if tensor.layout != torch.strided:
        yield tensor.values()
    elif tensor.is_quantized and tensor.dtype in (torch.quint4x2, torch.quint2x4):
        yield tensor.int_repr()  # as many bytes as they take
    else:
        yield tensor
