"""Language models of the `transformers` library: decoders, encoders, both, mixtures of experts, recurrences."""

from __future__ import annotations

from models import ROPE, TEXT, WORDS, language, model
from nets import Training

# Decoders


@model
def llama(dropout: float) -> Training:
    from transformers import LlamaConfig, LlamaForCausalLM

    return language(LlamaForCausalLM(LlamaConfig(**ROPE, attention_dropout=dropout)))


@model
def gpt2(dropout: float) -> Training:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=WORDS,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=1,
        eos_token_id=2,
    )
    return language(GPT2LMHeadModel(config))  # with its cache, as training scripts often leave it


@model
def qwen2(dropout: float) -> Training:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return language(Qwen2ForCausalLM(Qwen2Config(**ROPE, attention_dropout=dropout, tie_word_embeddings=True)))


@model
def gemma2(dropout: float) -> Training:
    """Soft-capped logits, sliding windows, norms on both sides."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(**ROPE, head_dim=8, attention_dropout=dropout, sliding_window=4, attn_implementation="eager")
    return language(Gemma2ForCausalLM(config))


@model
def phi3(dropout: float) -> Training:
    """One matrix for query, key and value, one for gate and up: chunks of one result."""
    from transformers import Phi3Config, Phi3ForCausalLM

    return language(Phi3ForCausalLM(Phi3Config(**ROPE, attention_dropout=dropout, resid_pdrop=dropout)))


@model
def bloom(dropout: float) -> Training:
    """ALiBi, a user-written autograd function for GELU, weights tied."""
    from transformers import BloomConfig, BloomForCausalLM

    config = BloomConfig(
        vocab_size=WORDS,
        hidden_size=16,
        n_layer=2,
        n_head=2,
        hidden_dropout=dropout,
        attention_dropout=dropout,
        bos_token_id=1,
        eos_token_id=2,
    )
    return language(BloomForCausalLM(config))


# Encoders


@model
def bert(dropout: float) -> Training:
    from transformers import BertConfig, BertForMaskedLM

    return language(BertForMaskedLM(BertConfig(**TEXT, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)))


@model
def deberta_v2(dropout: float) -> Training:
    """Disentangled attention."""
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        **TEXT,
        relative_attention=True,
        position_buckets=4,
        pos_att_type=["p2c", "c2p"],
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return language(DebertaV2ForMaskedLM(config))


@model
def modernbert(dropout: float) -> Training:
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    config = ModernBertConfig(
        **TEXT, mlp_dropout=dropout, attention_dropout=dropout, cls_token_id=1, sep_token_id=2, reference_compile=False
    )
    return language(ModernBertForMaskedLM(config))


# Encoder and decoder


@model
def t5(dropout: float) -> Training:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=WORDS,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        dropout_rate=dropout,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    )
    return language(T5ForConditionalGeneration(config))


@model
def bart(dropout: float) -> Training:
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=WORDS,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=16,
        dropout=dropout,
        encoder_layerdrop=dropout,
        decoder_start_token_id=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return language(BartForConditionalGeneration(config))


# Mixtures of experts


@model
def mixtral(dropout: float) -> Training:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**ROPE, num_local_experts=3, num_experts_per_tok=2, attention_dropout=dropout, output_router_logits=True)
    return language(MixtralForCausalLM(config))


@model
def deepseek_v3(dropout: float) -> Training:
    """Latent attention, shared experts, a router with groups."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = DeepseekV3Config(
        **{**ROPE, "num_key_value_heads": 2},
        moe_intermediate_size=8,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
        attention_dropout=dropout,
    )
    return language(DeepseekV3ForCausalLM(config))


# State spaces and other recurrences


@model
def mamba(_: float) -> Training:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=WORDS, hidden_size=16, state_size=4, num_hidden_layers=2, conv_kernel=3, time_step_rank=4, use_cache=False
    )
    return language(MambaForCausalLM(config))


@model
def rwkv(_: float) -> Training:
    from transformers import RwkvConfig, RwkvForCausalLM

    config = RwkvConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, context_length=8, bos_token_id=1, eos_token_id=2)
    return language(RwkvForCausalLM(config))
