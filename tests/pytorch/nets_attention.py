"""torch's own transformer layers, in training."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from nets import Training, adam, net, sgd
from torch import nn

_WIDTH, _HEADS, _TOKENS = 8, 2, 5


def _target() -> torch.Tensor:
    return torch.randn(3, _TOKENS, _WIDTH)


@net
def encoder_post_norm(dropout: float) -> Training:
    layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, 16, dropout, batch_first=True)
    model = nn.Sequential(nn.Linear(4, _WIDTH), nn.TransformerEncoder(layer, 2), nn.Linear(_WIDTH, 4))

    def forward_backward(_: int) -> torch.Tensor:
        x = torch.randn(3, _TOKENS, 4)
        mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
        hidden = model[1](model[0](x), src_key_padding_mask=mask)
        loss = (model[2](hidden) - x).pow(2).mean()
        loss.backward()
        return loss

    return Training(model, adam(model), forward_backward)


@net
def encoder_pre_norm(dropout: float) -> Training:
    layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, 16, dropout, activation="gelu", batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(_WIDTH), enable_nested_tensor=False)
    causal = nn.Transformer.generate_square_subsequent_mask(_TOKENS)

    def forward_backward(_: int) -> torch.Tensor:
        loss = F.mse_loss(model(torch.randn(3, _TOKENS, _WIDTH), mask=causal, is_causal=True), _target())
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


@net
def decoder(dropout: float) -> Training:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(_WIDTH, _HEADS, 16, dropout, batch_first=True), 2)
    causal = nn.Transformer.generate_square_subsequent_mask(_TOKENS)

    def forward_backward(_: int) -> torch.Tensor:
        memory = torch.randn(3, 6, _WIDTH, requires_grad=True)
        loss = F.smooth_l1_loss(model(tgt=torch.randn(3, _TOKENS, _WIDTH), memory=memory, tgt_mask=causal), _target())
        loss.backward()
        return loss

    return Training(model, adam(model), forward_backward)


class _SelfAttention(nn.Module):
    """Attention with its weights returned, queries, keys and values being one tensor."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(_WIDTH, _HEADS, dropout, batch_first=True)
        self.norm = nn.LayerNorm(_WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, weights = self.attention(x, x, x, need_weights=True)
        return self.norm(x + out), weights


@net
def attention_of_one_tensor(dropout: float) -> Training:
    model = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), _SelfAttention(dropout))

    def forward_backward(_: int) -> torch.Tensor:
        out, weights = model(torch.randn(3, _TOKENS, _WIDTH))
        loss = (out * _target()).sum() + weights.square().sum()
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)


@net
def scaled_dot_product(dropout: float) -> Training:
    model = nn.ModuleDict({"qkv": nn.Linear(_WIDTH, 3 * _WIDTH), "out": nn.Linear(_WIDTH, _WIDTH, bias=False)})
    bias = nn.Parameter(torch.randn(_HEADS, _TOKENS, _TOKENS))
    model.register_parameter("bias", bias)

    def forward_backward(_: int) -> torch.Tensor:
        x = torch.randn(3, _TOKENS, _WIDTH)
        q, k, v = (part.view(3, _TOKENS, _HEADS, -1).transpose(1, 2) for part in model["qkv"](x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(3, -1, -1, -1), dropout_p=dropout)
        loss = model["out"](mixed.transpose(1, 2).reshape(3, _TOKENS, _WIDTH)).square().mean()
        loss.backward()
        return loss

    return Training(model, sgd(model), forward_backward)
