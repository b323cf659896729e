"""Risk classes of APIs, for the field `risk_level`.

`python -m msprobe.recording.risk docs/risk_levels.md docs/zh/risk_levels.md` writes the page, and the names into its translation.

The table names every function of support_wrap_ops.yaml once, without what does not change its class: the `_` of in-place variants and
`_foreach_`. What it does not name (a user's own API, a function that a later torch brings) computes for all we know: FOCUS.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNWATCHED = """
    adjoint as_strided clone contiguous detach empty empty_like full_like ones ones_like stride view view_as zeros zeros_like"""
UNWATCHED = frozenset(_UNWATCHED.split())
"""In the table, and in no watch list under the names that torch, its tensors and its functions give them."""

PRINCIPLE = """\
**CORE**: one element of the result stands for a long sum of products or of exponentials, or for a whole formula that one kernel computes.
There the order and the precision of accumulation show, and implementations differ: matrix products, convolutions, normalisations, softmax
and attention, embeddings (their gradients sum up), losses, recurrent layers, fused kernels, communication.

**LOW**: nothing is computed. Every element of the result is an element of an input, at most converted to another type, or a value made
from plain numbers, and shapes and plain numbers alone decide where it goes: calls that view, move, create or convert. If the input is
right, so is the result.

**FOCUS**: everything else. Elements are computed, or tensors decide which elements are taken and where they go.
"""


@dataclass(frozen=True)
class Group:
    """Functions of one class that have their class for one reason."""

    risk: str
    title: str
    names: tuple[str, ...]
    remark: str = ""


def _group(risk: str, title: str, names: str, remark: str = "") -> Group:
    return Group(risk, title, tuple(names.split()), remark)


GROUPS: tuple[Group, ...] = (
    _group("CORE", "Matrix products", """
        linear bilinear matmul __matmul__ __rmatmul__ linalg.matmul mm bmm mv addmm addbmm baddbmm addmv addr einsum tensordot chain_matmul
        linalg.multi_dot matrix_power linalg.matrix_power inner dot vdot linalg.vecdot outer ger _grouped_mm _int_mm _scaled_grouped_mm
        _scaled_mm _weight_int4pack_mm _weight_int8pack_mm"""),
    _group("CORE", "Convolutions", """
        conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution"""),
    _group("CORE", "Normalisations", """
        batch_norm instance_norm layer_norm group_norm local_response_norm rms_norm normalize renorm native_batch_norm native_layer_norm
        native_group_norm _fused_rms_norm _weight_norm"""),
    _group("CORE", "Softmax and attention", """
        softmax log_softmax softmin gumbel_softmax special.softmax special.log_softmax logsumexp special.logsumexp logcumsumexp
        multi_head_attention_forward scaled_dot_product_attention"""),
    _group("CORE", "Embeddings", "embedding embedding_bag"),
    _group("CORE", "Losses", """
        binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy ctc_loss gaussian_nll_loss
        hinge_embedding_loss huber_loss kl_div l1_loss linear_cross_entropy margin_ranking_loss mse_loss multi_margin_loss
        multilabel_margin_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
        triplet_margin_with_distance_loss"""),
    _group("CORE", "Recurrent layers", "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell"),
    _group("CORE", "Fused optimizers", "_fused_adagrad _fused_adam _fused_adamw _fused_sgd"),
    _group("LOW", "View", """
        squeeze unsqueeze reshape reshape_as view view_as flatten unflatten ravel expand expand_as broadcast_to broadcast_tensors meshgrid
        transpose t permute moveaxis movedim swapaxes swapdims adjoint narrow select diagonal linalg.diagonal unfold view_as_complex
        view_as_real conj positive __pos__ atleast_1d atleast_2d atleast_3d stride detach chunk unsafe_chunk split
        split_with_sizes unsafe_split unsafe_split_with_sizes tensor_split hsplit vsplit dsplit unbind as_strided slice_inverse
        __getitem__""", "`__getitem__` is mostly a slice; with a tensor as index it is `index`"),
    _group("LOW", "Move", """
        cat concat concatenate stack hstack vstack dstack column_stack row_stack block_diag cartesian_prod combinations repeat
        repeat_interleave tile flip fliplr flipud roll rot90 fft.fftshift fft.ifftshift pad constant_pad_nd pixel_shuffle pixel_unshuffle
        channel_shuffle native_channel_shuffle diag diag_embed diagflat triu tril select_scatter slice_scatter diagonal_scatter
        as_strided_scatter clone contiguous copy"""),
    _group("LOW", "Create", """
        empty zeros ones full arange linspace logspace eye empty_like zeros_like ones_like full_like fill zero fill_diagonal rand randn
        randint randperm rand_like randn_like randint_like normal uniform random exponential cauchy geometric log_normal""",
        "with numbers drawn from plain parameters too"),
    _group("LOW", "Convert", """
        to type_as float double half bfloat16 int long short byte char bool cfloat cdouble chalf complex numpy to_dense to_sparse one_hot
        __bool__"""),
    _group("FOCUS", "Operators", """
        __abs__ __add__ __and__ __eq__ __floordiv__ __ge__ __gt__ __iadd__ __iand__ __ifloordiv__ __ilshift__ __imod__ __imul__ __invert__
        __ior__ __ipow__ __irshift__ __isub__ __itruediv__ __ixor__ __le__ __lshift__ __lt__ __mod__ __mul__ __ne__ __neg__ __or__ __pow__
        __radd__ __rand__ __rfloordiv__ __rlshift__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ __rxor__ __sub__
        __truediv__ __xor__"""),
    _group("FOCUS", "Elementwise", """
        abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
        ceil clamp clamp_max clamp_min clip conj_physical copysign cos cosh deg2rad digamma div divide erf erfc erfinv exp exp2 expm1 fix
        float_power floor floor_divide fmax fmin fmod frac frexp gcd heaviside hypot i0 igamma igammac lcm ldexp lerp lgamma log log10
        log1p log2 logaddexp logaddexp2 logit maximum minimum mul multiply mvlgamma nan_to_num neg negative nextafter polar polygamma pow
        rad2deg reciprocal remainder round rsqrt rsub sgn sigmoid sign sin sinc sinh sqrt square sub subtract tan tanh true_divide trunc
        xlogy"""),
    _group("FOCUS", "Special functions", """
        special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1 special.chebyshev_polynomial_t
        special.chebyshev_polynomial_u special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.digamma special.entr
        special.erf special.erfc special.erfcx special.erfinv special.exp2 special.expit special.expm1 special.gammainc special.gammaincc
        special.gammaln special.hermite_polynomial_h special.hermite_polynomial_he special.i0 special.i0e special.i1 special.i1e
        special.laguerre_polynomial_l special.legendre_polynomial_p special.log1p special.log_ndtr special.logit
        special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1 special.multigammaln
        special.ndtr special.ndtri special.polygamma special.psi special.round special.scaled_modified_bessel_k0
        special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
        special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w special.sinc special.spherical_bessel_j0
        special.xlog1py special.xlogy special.zeta"""),
    _group("FOCUS", "Activations", """
        celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish prelu relu relu6 rrelu selu silu softplus
        softshrink softsign tanhshrink threshold"""),
    _group("FOCUS", "Dropout and sampling", """
        alpha_dropout bernoulli binomial dropout dropout1d dropout2d dropout3d feature_alpha_dropout feature_dropout multinomial
        native_dropout poisson""", "tensors give the probabilities"),
    _group("FOCUS", "Reductions and running sums", """
        all amax amin aminmax any argmax argmin corrcoef count_nonzero cov cummax cummin cumprod cumsum cumulative_trapezoid diff
        frobenius_norm gradient linalg.matrix_norm linalg.norm linalg.vector_norm max mean median min mode nanmean nanmedian nanquantile
        nansum norm norm_except_dim nuclear_norm powsum prod quantile std std_mean sum sum_to_size trace trapezoid trapz var var_mean"""),
    _group("FOCUS", "Comparisons and logic", """
        bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor eq ge greater greater_equal gt isclose
        isfinite isin isinf isnan isneginf isposinf isreal le less less_equal logical_and logical_not logical_or logical_xor lt ne
        not_equal signbit"""),
    _group("FOCUS", "Choosing and placing by tensors", """
        __setitem__ argsort argwhere bincount bucketize gather histc histogram histogramdd index index_add index_copy index_fill index_put
        index_reduce index_select kthvalue masked_fill masked_scatter masked_select msort nonzero nonzero_static put scatter scatter_add
        scatter_reduce searchsorted sort sparse_mask take take_along_dim topk unique unique_consecutive unravel_index where"""),
    _group("FOCUS", "Pooling and resampling", """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices
        adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid
        affine_grid_generator avg_pool1d avg_pool2d avg_pool3d fold fractional_max_pool2d fractional_max_pool2d_with_indices
        fractional_max_pool3d fractional_max_pool3d_with_indices grid_sample grid_sampler grid_sampler_2d grid_sampler_3d interpolate
        lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
        max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d"""),
    _group("FOCUS", "Distances", "cdist cosine_similarity dist pairwise_distance pdist"),
    _group("FOCUS", "Linear algebra", """
        cholesky cholesky_inverse cholesky_solve cross det geqrf inverse kron linalg.cholesky linalg.cholesky_ex linalg.cond linalg.cross
        linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.householder_product linalg.inv linalg.inv_ex
        linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lstsq linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve
        linalg.matrix_exp linalg.matrix_rank linalg.matrix_sqrth linalg.pinv linalg.polar linalg.qr linalg.slogdet linalg.solve
        linalg.solve_ex linalg.solve_triangular
        linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve linalg.vander lobpcg logdet lu lu_solve lu_unpack matrix_exp orgqr
        ormqr pca_lowrank pinverse qr slogdet svd svd_lowrank triangular_solve"""),
    _group("FOCUS", "Fourier transforms", """
        fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft
        fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftn istft stft"""),
    _group("FOCUS", "Quantization", """
        dequantize fake_quantize_per_channel_affine fake_quantize_per_tensor_affine quantize_per_channel quantize_per_tensor
        quantize_per_tensor_dynamic"""),
)  # fmt: skip

ATEN: tuple[Group, ...] = (
    _group("CORE", "Normalisations", "_native_batch_norm_legit _batch_norm_with_update _native_batch_norm_legit_no_training"),
    _group("CORE", "Softmax and attention", """
        _safe_softmax _scaled_dot_product_attention_math _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention _native_multi_head_attention"""),
    _group("CORE", "Losses", "nll_loss2d nll_loss_forward nll_loss2d_forward"),
    _group("CORE", "Embeddings", "embedding_dense_backward _embedding_bag"),
    _group("LOW", "View", "alias slice lift lift_fresh _unsafe_view _reshape_alias"),
)  # fmt: skip
"""Operators of `torch.ops.aten` that have no counterpart by name above."""

FUSED_PREFIXES = ("Distributed", "NPU", "MindSpeed", "Triton")
"""Communication and hand-written fused kernels: CORE whatever the name."""

_RISK = {name: group.risk for group in GROUPS for name in group.names}
_ATEN_RISK = {name: group.risk for group in ATEN for name in group.names}
_DERIVED = re.compile(r"_(?:copy|backward|backward_data|backward_input|backward_weight|forward)$")


def risk_of(prefix: str, api: str) -> str:
    """The class of the API `prefix.api`, as in `Torch.linalg.norm`: CORE, FOCUS or LOW."""
    if prefix not in (*FUSED_PREFIXES, "Tensor", "Torch", "Functional", "VF", "Aten"):
        return "FOCUS"  # a user's own function, whatever its name
    if prefix in FUSED_PREFIXES:
        return "CORE"
    found = _known(api)
    if found is None and prefix == "Aten":
        found = _aten(api)
    return found or "FOCUS"


def _known(api: str) -> str | None:
    found = _RISK.get(api)
    if found is None and not api.endswith("__"):
        found = _RISK.get(api.removeprefix("_foreach_").removesuffix("_"))
    return found


def _aten(api: str) -> str | None:
    """An operator without counterpart of its own name: what it is the copying, private or backward form of."""
    names = [api, _DERIVED.sub("", api)]
    names += [name.removeprefix("_") for name in names]
    return next(filter(None, (_ATEN_RISK.get(name) or _known(name) for name in names)), None)


def within_risk_level(prefix: str, api: str, risk_level: str) -> bool:
    """Whether `risk_level` (ALL, FOCUS or CORE) records the API `prefix.api`."""
    if risk_level == "ALL":
        return True
    risk = risk_of(prefix, api)
    return risk == "CORE" or (risk == "FOCUS" and risk_level == "FOCUS")


_PAGE = """\
# Risk levels of APIs

<!-- written by: python -m msprobe.recording.risk docs/risk_levels.md -->

`risk_level` of [config.json](config.md) thins out APIs by their class. Modules are never thinned out, and neither is anything where `list`
or `scope` is set: then their wish alone counts.

| `risk_level` | records the classes |
| --- | --- |
| `CORE` | CORE |
| `FOCUS`, the default | CORE, FOCUS |
| `ALL`, or `null` | CORE, FOCUS, LOW |

## What decides the class

{principle}
## The table

A name stands for the function of `torch`, the method of `torch.Tensor` and the function of `torch.nn.functional` alike, for its in-place
variant (`relu` for `relu_`), and for the name with `_foreach_` in front. An operator of `torch.ops.aten` has the class of its namesake, or
of the function that it is a private (`_softmax`), copying (`view_copy`) or backward (`convolution_backward`) form of. What is not named
here, such as an API of your own, is FOCUS.

A name with † is in no watch list (`support_wrap_ops.yaml`), so that calls of it are not recorded at any `risk_level`: it computes nothing.
mindstudio-probe records none either of those that were tried (`view`, `clone`, `contiguous`, `detach`, `zeros`, `empty`, `zeros_like`). Its
class counts where a list of yours ([custom_apis.md](custom_apis.md)) adds it, and for the operator of `torch.ops.aten`. `clone` is recorded
as `_foreach_clone`.

| class | group | names |
| --- | --- | --- |
{rows}
"""


def _groups() -> list[Group]:
    """In the order of the table."""
    communication = Group("CORE", "Communication and fused kernels", (), f"everything with the prefix {', '.join(FUSED_PREFIXES)}")
    of_aten = [Group(group.risk, f"{group.title}, of `torch.ops.aten`", group.names) for group in ATEN]
    return [group for risk in ("CORE", "FOCUS", "LOW") for group in (*GROUPS, communication, *of_aten) if group.risk == risk]


def _names(group: Group) -> str:
    return ", ".join(f"`{name}`{'†' if name in UNWATCHED else ''}" for name in sorted(group.names))


def page() -> str:
    """The text of docs/risk_levels.md."""
    rows = [f"| {group.risk} | {group.title} | {'; '.join(filter(None, (_names(group), group.remark)))} |" for group in _groups()]
    return _PAGE.format(principle=PRINCIPLE, rows="\n".join(rows))


_ROW = re.compile(r"\| (?:CORE|FOCUS|LOW) \| ([^|]*) \| (?:`[^|\uff1b]*`†?)?([^|]*) \|")


def translated(text: str) -> str:
    """A page in another language with the names as they are now: its titles, and its remarks behind a full-width semicolon, stay.

    Raises:
        ValueError: its table has not a row for each group.
    """
    groups = iter(_groups())
    lines = [_renewed(row, groups) if (row := _ROW.fullmatch(line)) else line for line in text.split("\n")]
    if next(groups, None) is not None:
        raise ValueError("the table has too few rows")
    return "\n".join(lines)


def _renewed(row: re.Match[str], groups: Iterator[Group]) -> str:
    group = next(groups, None)
    if group is None:
        raise ValueError("the table has too many rows")
    return f"| {group.risk} | {row[1]} | {_names(group)}{row[2]} |"


def main(arguments: list[str]) -> int:
    """Write the page to the files named; of one in a directory `zh`, the names."""
    for path in map(Path, arguments):
        text = translated(path.read_text(encoding="utf-8")) if path.parent.name == "zh" else page()
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
