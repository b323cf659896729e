"""Models of images and of speech from the `transformers` library."""

from __future__ import annotations

import torch
from models import ROPE, TEXT, VISION, WORDS, images, model, padded, training
from nets import Training
from torch import nn

# Vision


@model
def vit(dropout: float) -> Training:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(**VISION, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, num_labels=3)
    return training(ViTForImageClassification(config), lambda net: net(images(), labels=torch.randint(3, (2,))).loss)


@model
def clip(dropout: float) -> Training:
    from transformers import CLIPConfig, CLIPModel

    network = CLIPModel(
        CLIPConfig(
            text_config={**TEXT, "attention_dropout": dropout},
            vision_config={**VISION, "attention_dropout": dropout},
            projection_dim=8,
        )
    )

    def loss_of(net: nn.Module) -> torch.Tensor:
        return net(**padded(), pixel_values=images(), return_loss=True).loss  # type: ignore[no-any-return]

    return training(network, loss_of)


@model
def swin(dropout: float) -> Training:
    """Shifted windows: rolls and masks; whole paths dropped."""
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=16,
        patch_size=2,
        embed_dim=8,
        depths=[2, 2],
        num_heads=[2, 2],
        window_size=4,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        drop_path_rate=dropout,
        num_labels=3,
    )
    return training(SwinForImageClassification(config), lambda net: net(images(), labels=torch.randint(3, (2,))).loss)


@model
def llava(dropout: float) -> Training:
    """Images among the words: features are written into the embeddings of placeholders."""
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    network = LlavaForConditionalGeneration(
        LlavaConfig(
            text_config={"model_type": "llama", **ROPE, "attention_dropout": dropout},
            vision_config={"model_type": "clip_vision_model", **VISION},
            image_token_index=31,
            image_token_id=31,
            image_seq_length=4,
            vision_feature_layer=-1,
        )
    )

    def loss_of(net: nn.Module) -> torch.Tensor:
        words = torch.cat([torch.full((2, 4), 31), torch.randint(3, 30, (2, 5))], 1)
        return net(input_ids=words, pixel_values=images(), labels=words).loss  # type: ignore[no-any-return]

    return training(network, loss_of)


# Speech


@model
def wav2vec2(dropout: float) -> Training:
    """Convolutions with weight norm, masked time steps from NumPy's generator, CTC."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        conv_dim=(8, 8),
        conv_kernel=(6, 4),
        conv_stride=(4, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        hidden_dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
        feat_proj_dropout=dropout,
        final_dropout=dropout,
        mask_time_prob=0.3,
        mask_time_length=2,
        mask_time_min_masks=1,
        layerdrop=dropout,
        ctc_zero_infinity=True,
        pad_token_id=0,
    )
    return training(Wav2Vec2ForCTC(config), lambda net: net(torch.randn(2, 160), labels=torch.randint(1, WORDS, (2, 3))).loss)


@model
def whisper(dropout: float) -> Training:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=WORDS,
        num_mel_bins=8,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_source_positions=12,
        max_target_positions=8,
        dropout=dropout,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    network = WhisperForConditionalGeneration(config)
    return training(network, lambda net: net(torch.randn(2, 8, 24), labels=torch.randint(3, WORDS, (2, 5))).loss)
