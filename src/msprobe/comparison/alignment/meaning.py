"""Functions and operators that compute the same under several names: `x + y`, `x.add(y)` and `torch.add(x, y)`.

Only functions whose arguments stand in the same order under all their names are listed; `R` operators have the first two exchanged.
"""

from __future__ import annotations

from msprobe.comparison.aliases import canonical

_ARITHMETIC = "add sub mul div pow matmul"
_COMPARISON = "eq ne lt le gt ge"
_ELEMENTWISE = (
    "abs acos asin atan atan2 ceil clamp cos cosh erf erfc exp expm1 floor floor_divide fmod isfinite isinf isnan lerp log log10 log1p"
    " log2 logaddexp logical_and logical_not logical_or logical_xor maximum minimum neg reciprocal remainder round rsqrt sigmoid sign sin"
    " sinh sqrt square tan tanh trunc nan_to_num masked_fill bitwise_and bitwise_or bitwise_xor bitwise_not"
)
_REDUCTIONS = "all any amax amin argmax argmin cumprod cumsum logsumexp max mean median min norm prod std sum var sort topk"
_SHAPES = (
    "chunk flatten flip gather index_select movedim narrow permute repeat_interleave reshape roll select split squeeze swapaxes"
    " take tile transpose tril triu unbind unflatten unsqueeze where"
)
_PRODUCTS = "addbmm addcdiv addcmul addmm addmv addr baddbmm bmm dot einsum inner kron mm mv outer scatter scatter_add index_add"
_ACTIVATIONS = "relu softmax log_softmax celu selu dropout gelu silu threshold hardshrink prelu pixel_shuffle pixel_unshuffle"

_OPERATORS = {
    **{name: name for name in f"{_ARITHMETIC} {_COMPARISON}".split()},
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
    "neg": "neg",
    "abs": "abs",
}
_REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_OTHER_NAMES = {
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "subtract": "sub",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
    "absolute": "abs",
    "negative": "neg",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "swapdims": "transpose",
    "view": "reshape",
}

_SAME = frozenset(" ".join((_ARITHMETIC, _COMPARISON, _ELEMENTWISE, _REDUCTIONS, _SHAPES, _PRODUCTS, _ACTIVATIONS, "cat")).split())
_PREFIXES = frozenset({"Tensor", "Torch", "Functional"})
# Of these the module-level and the method's arguments differ in order.
_DIFFERENT_ORDER = frozenset({"Tensor.where"})

EXCHANGED = frozenset(f"Tensor.__r{name}__" for name in _REFLECTED)
"""Operators that got their operands the other way round: `1 - x` is `Tensor.__rsub__` of (x, 1)."""


def meaning(operation: str) -> str:
    """One name for all APIs that compute the same: `+add` for `Tensor.__add__`, `Tensor.__iadd__`, `Tensor.add_` and `Torch.add`.

    Where nothing of one meaning is known, the name that all spellings of the very function have (aliases.py).
    """
    prefix, _, api = operation.partition(".")
    api = api.removeprefix("linalg.")
    if prefix not in _PREFIXES or operation in _DIFFERENT_ORDER:
        return canonical(operation)
    if api.startswith("__") and api.endswith("__"):
        plain = api[2:-2]
        found = _OPERATORS.get(plain) or (_OPERATORS.get(plain[1:]) if plain[:1] in ("r", "i") else None)
        return f"+{found}" if found else canonical(operation)
    plain = api[:-1] if api.endswith("_") and not api.endswith("__") else api
    plain = _OTHER_NAMES.get(plain, plain)
    return f"+{plain}" if plain in _SAME else canonical(operation)


__all__ = ["EXCHANGED", "meaning"]
