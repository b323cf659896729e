"""Every number that turns a measured difference into a word. docs/compare.md explains each of them."""

from __future__ import annotations

# --- How much of a difference is rounding -----------------------------------------------------------------------------
# Sizes are relative: statistics are taken relative to the largest magnitude in the tensor (the Norm to the larger Norm), tensors as
# |target - golden| / max(|target|, |golden|), all L2 norms.

ROUNDING: dict[str, float] = {
    "float64": 1e-8,
    "complex128": 1e-8,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 2e-3,
    "complex32": 2e-3,
    "bfloat16": 8e-3,
    "float8_e4m3fn": 0.06,
    "float8_e4m3fnuz": 0.06,
    "float8_e5m2": 0.12,
    "float8_e5m2fnuz": 0.12,
    "float8_e8m0fnu": 0.5,
    "float4_e2m1fn_x2": 0.5,
}
"""Up to this relative size a difference may be rounding: about one unit in the last place of the narrow dtypes, and what another order
of summation gives in the wide ones. Integers and bool have none."""

SLIGHT: dict[str, float] = {
    "float64": 1e-6,
    "complex128": 1e-6,
    "float32": 2e-3,
    "complex64": 2e-3,
    "float16": 1e-2,
    "complex32": 1e-2,
    "bfloat16": 4e-2,
    "float8_e4m3fn": 0.4,
    "float8_e4m3fnuz": 0.4,
    "float8_e5m2": 0.6,
    "float8_e5m2fnuz": 0.6,
    "float8_e8m0fnu": 1.0,
    "float4_e2m1fn_x2": 1.0,
}
"""Up to this relative size an output that differs on agreeing inputs is a warning (narrower arithmetic such as TF32 does that); above,
an error. Where the first difference starts, a difference beyond ROUNDING is an error whatever its size."""

GROWTH = 4.0
GROWTH_SAMPLED = 6.0
"""A difference up to so many times the expected error (judging/expected.py) is explained by rounding: the constant of the probabilistic
bound (four standard deviations) and what the first-order estimate leaves out. The second where the errors of the inputs are known from
statistics alone."""

AMBIENT_DECAY = 0.9
AMBIENT_LIMIT = 10.0
"""Where an input's history is not recorded it may carry the error that explained results before it carried: the largest, forgotten by a
tenth with every result, and never more than so many times ROUNDING."""

BESIDE_CASTS: tuple[tuple[int, float], ...] = ((16, 0.01), (5, 2.0))
BESIDE_FEW_CASTS = 10.0
BESIDE_FEW_CASTS_RELATIVE = 0.02
"""Weights that have another dtype on each side, and are no casts of each other (judging/weights.py). Where for each of them so many others
are casts to the bit, and none is in between, those are other weights that are so many roundings of a usual weight away. Where fewer are,
a single one, or one for every four casts, is when it is beyond both of the last two, the second relative to its own size. Of 5,100 pairs
of nets with 2 to 40 weights, after 1 to 30 steps of SGD and AdamW in two dtypes, none went so far."""

SCALAR_ROUNDING = 1e-6
"""For Python floats (a loss that went through `.item()`)."""

# --- The rules of the existing tool -----------------------------------------------------------------------------------

THOUSANDTH_INPUT = 0.9
"""Tensor mode: inputs count as agreeing when their One Thousandth Err Ratio is above this."""

THOUSANDTH_OUTPUT = 0.6
"""Tensor mode: an output below this is an error when the inputs agree."""

COSINE_INPUT = 0.9
COSINE_DROP = 0.1
"""Tensor mode: an output whose Cosine is lower than its inputs' by more than this is a warning."""

NORM_INPUT = 0.1
NORM_OUTPUT = 0.5
"""Statistics: NormRelativeErr of all inputs below the first, of the output above the second, is an error."""

NORM_FROM_EQUAL = 0.1
NORM_GROWTH = 10.0
"""Statistics: NormRelativeErr of the output above the first on equal inputs, or more than so many times the inputs', is a warning."""

# --- Metrics ------------------------------------------------------------------------------------------------------------

THOUSANDTH = 1e-3
FIVE_THOUSANDTHS = 5e-3
"""Bounds of the relative error of one element in the two ratios."""
