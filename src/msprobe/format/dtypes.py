"""How torch's zip format spells each dtype."""

from __future__ import annotations

# name -> (bytes per element, name of the typed storage class or "" where the file names an untyped storage and the dtype)
SPELLING: dict[str, tuple[int, str]] = {
    "float64": (8, "DoubleStorage"),
    "float32": (4, "FloatStorage"),
    "float16": (2, "HalfStorage"),
    "bfloat16": (2, "BFloat16Storage"),
    "int64": (8, "LongStorage"),
    "int32": (4, "IntStorage"),
    "int16": (2, "ShortStorage"),
    "int8": (1, "CharStorage"),
    "uint8": (1, "ByteStorage"),
    "bool": (1, "BoolStorage"),
    "complex128": (16, "ComplexDoubleStorage"),
    "complex64": (8, "ComplexFloatStorage"),
    "complex32": (4, ""),
    "uint64": (8, ""),
    "uint32": (4, ""),
    "uint16": (2, ""),
    "float8_e4m3fn": (1, ""),
    "float8_e4m3fnuz": (1, ""),
    "float8_e5m2": (1, ""),
    "float8_e5m2fnuz": (1, ""),
    "float8_e8m0fnu": (1, ""),
    "float4_e2m1fn_x2": (1, ""),
    "bits8": (1, ""),
    "bits16": (2, ""),
    "bits1x8": (1, ""),
    "bits2x4": (1, ""),
    "bits4x2": (1, ""),
}

STORAGE_DTYPE = {storage: name for name, (_, storage) in SPELLING.items() if storage}


def itemsize(dtype: str) -> int:
    """Bytes per element; KeyError for a dtype that tensor files cannot hold."""
    return SPELLING[dtype][0]
