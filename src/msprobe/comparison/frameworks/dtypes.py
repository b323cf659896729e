"""Names of dtypes: `torch.float32` of `Float32`."""

from __future__ import annotations

from msprobe.numerics.dtypes import DTYPES

_OTHERS = {
    "Float8E4M3FN": "float8_e4m3fn",
    "Float8E5M2": "float8_e5m2",
    "HiFloat8": "hifloat8",  # Ascend's own, which torch has not
    "Int4": "int4",
    "QInt4x2": "int4x2",
}

RECORDED: dict[str, str] = {
    **{name.replace("int", "Int").replace("uInt", "UInt") if "int" in name else name.capitalize(): name for name in DTYPES},
    "BFloat16": "bfloat16",
    **_OTHERS,
}
"""dtype as MindSpore names it -> torch's name without `torch.`."""

TORCH: dict[str, str] = {name: f"torch.{there}" for name, there in RECORDED.items()}
"""dtype as MindSpore names it -> as a dump of PyTorch names it."""
