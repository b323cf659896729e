"""What torch says of the determinism of its operations.

Source: the documentation of torch.use_deterministic_algorithms (of torch 2.13), which lists the operations that may give other results
each time, https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html.
"""

from __future__ import annotations

from typing import NamedTuple

from msprobe.comparison.names import EntryName

SOURCE = "torch.use_deterministic_algorithms"
_FORWARD, _BACKWARD = "forward", "backward"


class Listed(NamedTuple):
    """An operation in torch's list.

    Attributes:
        direction: where it may give other results.
        when: under which condition, as the list has it.
        raises: with deterministic algorithms on it raises an error; otherwise another algorithm is taken.
    """

    direction: str
    when: str
    raises: bool


_CUDA = "on a CUDA tensor"
_OTHER: dict[str, Listed] = {
    **{f"conv{n}d": Listed("", _CUDA, False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": Listed("", _CUDA, False) for n in (1, 2, 3)},
    "bmm": Listed(_FORWARD, "on a sparse and a dense CUDA tensor", False),
    "__getitem__": Listed(_BACKWARD, "on a CPU tensor, with a list of tensors as index", False),
    "index_put": Listed(_FORWARD, "with accumulate=False, or with accumulate=True on a CPU tensor", False),
    "scatter_add": Listed(_FORWARD, _CUDA, False),
    "gather": Listed(_BACKWARD, _CUDA, False),
    "index_add": Listed(_FORWARD, _CUDA, False),
    "index_select": Listed(_BACKWARD, _CUDA, False),
    "repeat_interleave": Listed(_BACKWARD, _CUDA, False),
    "index_copy": Listed(_FORWARD, "on a CPU or CUDA tensor", False),
    "scatter": Listed(_FORWARD, "with a tensor as src, on a CUDA tensor", False),
    "scatter_reduce": Listed(_FORWARD, "on a CUDA tensor (reduce='prod' raises an error, sum and mean have another algorithm)", False),
    "max_pool3d": Listed(_BACKWARD, _CUDA, False),
}
_RAISES: dict[str, Listed] = {
    **dict.fromkeys(
        (
            "avg_pool3d",
            "adaptive_avg_pool2d",
            "adaptive_avg_pool3d",
            "adaptive_max_pool2d",
            "fractional_max_pool2d",
            "fractional_max_pool3d",
            "ctc_loss",
            "grid_sample",
        ),
        Listed(_BACKWARD, _CUDA, True),
    ),
    **{f"max_unpool{n}d": Listed("", "on any tensor", True) for n in (1, 2, 3)},
    "interpolate": Listed(_BACKWARD, "on a CUDA tensor, in the modes linear, bilinear, bicubic and trilinear", True),
    "upsample": Listed(_BACKWARD, "on a CUDA tensor, in the modes linear, bilinear, bicubic and trilinear", True),
    "pad": Listed(_BACKWARD, "on a CUDA tensor, in the modes reflect (raises) and replicate", True),
    "nll_loss": Listed(_FORWARD, _CUDA, True),
    "embedding_bag": Listed(_BACKWARD, "on a CUDA tensor, with mode='max'", True),
    "put": Listed(_FORWARD, "with accumulate=False, or with accumulate=True on a CUDA tensor", True),
    "histc": Listed(_FORWARD, _CUDA, True),
    "bincount": Listed(_FORWARD, "on a CUDA tensor with weights", True),
    "median": Listed(_FORWARD, "on a CUDA tensor, of its indices", True),
    "cumsum": Listed(_FORWARD, "on a CUDA tensor, of floating-point or complex numbers", True),
}
LISTED: dict[str, Listed] = _OTHER | _RAISES


def listed(parts: EntryName) -> Listed | None:
    """What torch's list has of a call, None where it has nothing of this direction."""
    found = LISTED.get(_plain(parts.api))
    return found if found is not None and found.direction in ("", parts.direction) else None


def _plain(api: str) -> str:
    return api if api.startswith("__") else api.rstrip("_")
