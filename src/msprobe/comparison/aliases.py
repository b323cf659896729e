"""Names under which the existing tool records calls that we record under another name. One table, used by matching only.

An API is `{Prefix}.{api}`. Two reasons for a different name:

- one object with two spellings (`torch.relu_ is torch.nn.functional.relu_`): the existing tool names the spelling, we name the first
  category that lists the object, `Functional` before `Torch`;
- `torch.linalg.X`: the existing tool keeps only what follows the last dot, so that `torch.linalg.norm` shares the counter of `torch.norm`.
"""

from __future__ import annotations

_SHARED = [
    "adaptive_avg_pool1d",
    "avg_pool1d",
    "bilinear",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "hardshrink",
    "native_channel_shuffle",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "relu_",
    "rrelu_",
    "selu_",
    "threshold_",
]

_LINALG = [
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_sqrth",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

ALIASES: tuple[tuple[str, str], ...] = (
    *((f"Torch.{api}", f"Functional.{api}") for api in _SHARED),
    *((f"Torch.{api}", f"Torch.linalg.{api}") for api in _LINALG),
)
"""(name in the existing tool, name in ours)."""


def _canonical() -> dict[str, str]:
    groups: dict[str, str] = {}
    for theirs, ours in ALIASES:
        leader = groups.get(theirs) or groups.get(ours) or ours
        groups[theirs] = groups[ours] = leader
    return groups


_CANONICAL = _canonical()


def canonical(api: str) -> str:
    """One name for all spellings of an API; `api` itself when it has only one."""
    return _CANONICAL.get(api, api)
