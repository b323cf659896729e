"""The table of dtypes: names as torch spells them, the kernels' codes, sizes.

A dtype that is missing here (packed four-bit types, quantized types, ``object``) has no statistics.
"""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    """What the kernels and their twin need to know of one dtype."""

    name: str  # torch's name without "torch."
    code: int  # the number csrc/base.h gives it
    itemsize: int  # bytes per element
    kind: str  # "b" bool, "u" unsigned, "i" signed, "f" floating, "c" complex


# The order is that of the enum in csrc/base.h; a test holds the two together.
_TABLE = (
    DType("bool", 0, 1, "b"),
    DType("uint8", 1, 1, "u"),
    DType("int8", 2, 1, "i"),
    DType("uint16", 3, 2, "u"),
    DType("int16", 4, 2, "i"),
    DType("uint32", 5, 4, "u"),
    DType("int32", 6, 4, "i"),
    DType("uint64", 7, 8, "u"),
    DType("int64", 8, 8, "i"),
    DType("float16", 9, 2, "f"),
    DType("bfloat16", 10, 2, "f"),
    DType("float32", 11, 4, "f"),
    DType("float64", 12, 8, "f"),
    DType("complex32", 13, 4, "c"),
    DType("complex64", 14, 8, "c"),
    DType("complex128", 15, 16, "c"),
    DType("float8_e4m3fn", 16, 1, "f"),
    DType("float8_e5m2", 17, 1, "f"),
    DType("float8_e4m3fnuz", 18, 1, "f"),
    DType("float8_e5m2fnuz", 19, 1, "f"),
    DType("float8_e8m0fnu", 20, 1, "f"),
)

BY_NAME: dict[str, DType] = {d.name: d for d in _TABLE}
BY_CODE: dict[int, DType] = {d.code: d for d in _TABLE}
DTYPES: tuple[str, ...] = tuple(d.name for d in _TABLE)
CODE: dict[str, int] = {d.name: d.code for d in _TABLE}
ITEMSIZE: dict[str, int] = {d.name: d.itemsize for d in _TABLE}


def lookup(name: str) -> DType:
    """The entry of a dtype name; a ``torch.`` or ``numpy.`` prefix is allowed. ValueError names what is known."""
    short = name.rsplit(".", 1)[-1]
    try:
        return BY_NAME[short]
    except KeyError:
        raise ValueError(f"dtype {name!r} has no numbers to work with; known are {', '.join(DTYPES)}") from None


def by_code(code: int) -> DType:
    """The entry of a kernel code; ValueError for a number that is none."""
    try:
        return BY_CODE[code]
    except KeyError:
        raise ValueError(f"dtype code {code} is not one of 0..{len(_TABLE) - 1}") from None
