"""Which kind of operation a call is, as far as the error of its result is concerned. What is not listed has no expectation."""

from __future__ import annotations

from enum import Enum, auto
from functools import cache

from msprobe.comparison.names import EntryName


class Kind(Enum):
    """Operations whose results err alike."""

    BILINEAR = auto()
    """Sums of products: linear, matmul, convolution."""
    ADDITIVE = auto()
    PRODUCT = auto()
    POWER = auto()
    """A small power of each element: sqrt, rsqrt, pow, reciprocal."""
    BOUNDED = auto()
    """Elementwise, and no more sensitive than the identity: silu, tanh, a cast."""
    KINKED = auto()
    """The same, with a slope that jumps: relu, clamp. A rounding error of the argument decides whether a gradient passes."""
    EXPONENTIAL = auto()
    """Elementwise, with the absolute error of the argument as the relative error of the result: exp; sin and cos of large angles."""
    LOGARITHM = auto()
    SELECT = auto()
    """Takes elements as they are: views, indexing, embedding, concatenation, where."""
    SUM = auto()
    MEAN = auto()
    NORMALISE = auto()
    """Divides by a root mean square."""
    CENTRE = auto()
    """Subtracts the mean first: layer_norm, batch_norm, group_norm."""
    SOFTMAX = auto()
    ATTENTION = auto()
    CLASSIFICATION = auto()
    """A loss of logits or of log-probabilities."""
    SQUARED = auto()
    """mse_loss."""


_APIS: dict[Kind, str] = {
    Kind.BILINEAR: """linear bilinear matmul __matmul__ __rmatmul__ mm bmm mv dot addmm baddbmm addbmm einsum tensordot outer
        conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d""",
    Kind.ADDITIVE: "add add_ __add__ __radd__ __iadd__ sub sub_ __sub__ __rsub__ __isub__ subtract rsub",
    Kind.PRODUCT: """mul mul_ multiply __mul__ __rmul__ __imul__ div div_ divide true_divide __truediv__ __rtruediv__ __itruediv__
        __div__ __neg__ neg""",
    Kind.POWER: "sqrt sqrt_ rsqrt rsqrt_ reciprocal square pow pow_ __pow__",
    Kind.BOUNDED: """gelu silu mish tanh sigmoid softsign elu selu celu softplus to float double half bfloat16 type dropout logsigmoid""",
    Kind.KINKED: "relu relu_ relu6 leaky_relu prelu threshold hardtanh hardswish hardsigmoid clamp clamp_ clip abs",
    Kind.EXPONENTIAL: "exp exp_ exp2 expm1 sin cos",
    Kind.LOGARITHM: "log log2 log10 log1p",
    Kind.SELECT: """view reshape transpose permute t contiguous expand expand_as flatten unflatten squeeze unsqueeze __getitem__ narrow
        select chunk split unbind index_select gather embedding cat concat stack where masked_fill masked_fill_ pad roll flip repeat
        repeat_interleave clone detach tril triu topk sort maximum minimum max_pool1d max_pool2d swapaxes movedim take tile""",
    Kind.SUM: "sum cumsum index_add index_add_ scatter_add scatter_add_",
    Kind.MEAN: "mean avg_pool1d avg_pool2d adaptive_avg_pool2d",
    Kind.NORMALISE: "rms_norm normalize",
    Kind.CENTRE: "layer_norm batch_norm group_norm instance_norm",
    Kind.SOFTMAX: "softmax log_softmax _softmax",
    Kind.ATTENTION: "scaled_dot_product_attention npu_fusion_attention npu_prompt_flash_attention flash_attn_func",
    Kind.CLASSIFICATION: "cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div",
    Kind.SQUARED: "mse_loss",
}
_MODULES: dict[Kind, str] = {
    Kind.BILINEAR: """Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Bilinear Conv1D
        ColumnParallelLinear RowParallelLinear QKVParallelLinear MergedColumnParallelLinear ReplicatedLinear""",
    Kind.BOUNDED: """GELU SiLU Mish Tanh Sigmoid Softsign ELU SELU CELU Softplus Dropout
        SiLUActivation GELUActivation NewGELUActivation GELUTanh Identity""",
    Kind.KINKED: "ReLU ReLU6 LeakyReLU PReLU Hardtanh Hardswish Hardsigmoid",
    Kind.SELECT: "Embedding VocabParallelEmbedding Flatten MaxPool1d MaxPool2d",
    Kind.MEAN: "AvgPool1d AvgPool2d AdaptiveAvgPool2d",
    Kind.CENTRE: "LayerNorm BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d",
    Kind.SOFTMAX: "Softmax LogSoftmax",
    Kind.CLASSIFICATION: "CrossEntropyLoss NLLLoss BCELoss BCEWithLogitsLoss KLDivLoss",
    Kind.SQUARED: "MSELoss",
}
_API_KINDS = {name: kind for kind, names in _APIS.items() for name in names.split()}
_CLASS_KINDS = {name: kind for kind, names in _MODULES.items() for name in names.split()}


def kind_of(parts: EntryName) -> Kind | None:
    """The kind of a call, None for one that is not listed: a module that holds others, a user's function."""
    return _kind(parts.base, parts.api)


@cache
def _kind(base: str, api: str) -> Kind | None:
    if api:
        return _API_KINDS.get(api)
    name = base.rpartition(".")[2]
    return Kind.NORMALISE if name.endswith("RMSNorm") else _CLASS_KINDS.get(name)
