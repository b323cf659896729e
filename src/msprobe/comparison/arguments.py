"""What the places of a function's arguments are called: `input.7` of batch_norm is `eps`.

A dump counts the arguments given by position. Names are those of the functions' documented signatures; only common functions are listed.
"""

from __future__ import annotations

_CONV = "input weight bias stride padding dilation groups"
_CONV_TRANSPOSE = "input weight bias stride padding output_padding groups dilation"
_ACTIVATION = "input inplace"
_DROPOUT = "input p training inplace"
_SOFTMAX = "input dim _stacklevel dtype"

NAMES: dict[str, str] = {
    "Functional.linear": "input weight bias",
    "Functional.embedding": "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse",
    "Functional.layer_norm": "input normalized_shape weight bias eps",
    "Functional.rms_norm": "input normalized_shape weight eps",
    "Functional.group_norm": "input num_groups weight bias eps",
    "Functional.batch_norm": "input running_mean running_var weight bias training momentum eps",
    "Functional.instance_norm": "input running_mean running_var weight bias use_input_stats momentum eps",
    **{f"Functional.{name}": _DROPOUT for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")},
    **{f"Functional.{name}": _SOFTMAX for name in ("softmax", "log_softmax", "softmin")},
    **{f"Functional.{name}": _ACTIVATION for name in ("relu", "relu6", "silu", "mish", "selu", "hardswish", "hardsigmoid")},
    "Functional.gelu": "input approximate",
    "Functional.leaky_relu": "input negative_slope inplace",
    "Functional.elu": "input alpha inplace",
    "Functional.celu": "input alpha inplace",
    **{f"Functional.conv{n}d": _CONV for n in (1, 2, 3)},
    **{f"Functional.conv_transpose{n}d": _CONV_TRANSPOSE for n in (1, 2, 3)},
    "Functional.scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal scale enable_gqa",
    "Functional.multi_head_attention_forward": "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v"
    " add_zero_attn dropout_p out_proj_weight out_proj_bias training",
    "Functional.cross_entropy": "input target weight size_average ignore_index reduce reduction label_smoothing",
    "Functional.nll_loss": "input target weight size_average ignore_index reduce reduction",
    **{f"Functional.{name}": "input target size_average reduce reduction weight" for name in ("mse_loss", "l1_loss")},
    "Functional.smooth_l1_loss": "input target size_average reduce reduction beta",
    "Functional.kl_div": "input target size_average reduce reduction log_target",
    "Functional.binary_cross_entropy": "input target weight size_average reduce reduction",
    "Functional.binary_cross_entropy_with_logits": "input target weight size_average reduce reduction pos_weight",
}
"""Function as in the names of a dump -> its arguments in order."""


def argument_name(base: str, key: str) -> str:
    """`eps` for (`Functional.batch_norm`, `input.7`); "" where the name is not known, or says no more than the key."""
    role, _, place = key.partition(".")
    number, _, rest = place.partition(".")
    names = NAMES.get(base, "").split()
    if role != "input" or not number.isdecimal() or int(number) >= len(names):
        return ""
    name = names[int(number)]
    return "" if name == "input" else f"{name}.{rest}" if rest else name
