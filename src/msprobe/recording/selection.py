"""Which calls are recorded, and which sides of them."""

from __future__ import annotations

from msprobe.config.result import DataMode


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOW_RISK = _words("""
    squeeze unsqueeze reshape reshape_as view view_as flatten unflatten expand expand_as repeat repeat_interleave tile transpose permute
    moveaxis movedim swapaxes swapdims chunk unsafe_chunk split split_with_sizes unbind stack cat concat concatenate hstack vstack dstack
    column_stack row_stack align_as align_to align_tensors atleast_1d atleast_2d atleast_3d ravel clamp unfold type_as to float double int
    long half bfloat16 byte char bool cfloat numpy empty empty_like zeros zeros_like ones ones_like full full_like arange linspace logspace
    eye identity diag diag_embed diagflat diagonal triu triu_ tril tril_ clone __bool__ stride
    __getitem__ copy_ zero_ uniform_ random_ rand randn randint randperm rand_like randn_like randint_like normal
""")
"""APIs that only view, move, create or convert: left out by `risk_level` FOCUS."""

CORE = _words("""
    linear bilinear matmul __matmul__ bmm mm mv addmm addmm_ addbmm addbmm_ baddbmm baddbmm_ addmv addmv_ addr addr_ einsum tensordot
    multi_dot linalg.multi_dot linalg.matmul chain_matmul outer inner dot vdot conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d convolution batch_norm instance_norm layer_norm group_norm local_response_norm rms_norm normalize
    native_layer_norm native_batch_norm native_group_norm softmax log_softmax softmin gumbel_softmax multi_head_attention_forward
    scaled_dot_product_attention embedding embedding_bag cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div
    binary_cross_entropy binary_cross_entropy_with_logits ctc_loss lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell _fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_ _fused_rms_norm
""")
"""APIs where precision is most often lost: all that `risk_level` CORE keeps, with communication."""


def within_risk_level(prefix: str, api: str, risk_level: str) -> bool:
    """Whether `risk_level` (ALL, FOCUS or CORE) records the API `prefix.api`."""
    if risk_level == "ALL" or prefix == "Distributed":
        return True
    if risk_level == "CORE":
        return api in CORE
    return api not in LOW_RISK or prefix == "VF"


class Selection:
    """The fields `list`, `scope`, `tensor_list`, `risk_level` and `data_mode`, asked by entry name.

    One object serves one step: scope opens and closes as names pass by.
    """

    def __init__(
        self,
        names: tuple[str, ...] = (),
        scope: tuple[str, ...] = (),
        tensor_names: tuple[str, ...] = (),
        risk_level: str = "FOCUS",
        sides: DataMode | None = None,
        expand_modules: bool = False,
    ) -> None:
        self.sides = sides or DataMode()
        self._names = names
        self._scope = scope
        self._tensor_names = tensor_names
        self._risk_level = "ALL" if names or scope else risk_level
        self._within: dict[tuple[str, str], bool] = {}
        self._expand = expand_modules and bool(names)
        self._in_scope = not scope
        self._closing = False
        self._last_gradients = scope[1].rpartition(".backward.")[0] + ".parameters_grad." if scope else ""
        self.everything = not names and not scope
        """True when no entry is refused by name: the hot path asks no further."""

    def wants_api(self, prefix: str, api: str) -> bool:
        """Whether the risk level lets this API through at all."""
        key = (prefix, api)
        known = self._within.get(key)
        if known is None:
            known = self._within[key] = within_risk_level(prefix, api, self._risk_level)
        return known

    def enters(self, name: str) -> bool:
        """Say that the call `name` (a forward or backward entry) begins or has come; whether it is recorded.

        With `scope`, the first name opens it and the second closes it, both included; the gradients of the parameters of the module
        that closes it still belong to it.
        """
        if self.everything:
            return True
        if self._scope:
            if self._closing and not name.startswith(self._last_gradients):
                self._in_scope = self._closing = False
            if name == self._scope[0]:
                self._in_scope = True
            if name == self._scope[1]:
                self._closing = True
        return self._in_scope and self.matches(name)

    def matches(self, name: str) -> bool:
        """Whether `list` asks for this entry."""
        return not self._names or any(item in name for item in self._names)

    def expands(self, module_name: str) -> bool:
        """Whether everything that runs inside this module is recorded too (`list` at level mix)."""
        return self._expand and any(item in module_name for item in self._names)

    def ends_inside(self, name: str) -> bool:
        """Whether a module that was left out when it began ends inside the scope."""
        return bool(self._scope) and self._in_scope and self.matches(name)

    def saves_tensors(self, name: str) -> bool:
        """Whether `tensor_list` asks for the values of this entry."""
        return any(item in name for item in self._tensor_names)
