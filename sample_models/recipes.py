"""The sample models: architecture, size and weight format of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transformers import (
    Gemma3TextConfig,
    LlamaConfig,
    MixtralConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from .encoding import CONTEXT, VOCABULARY


@dataclass(frozen=True)
class Recipe:
    """How one model is made.

    ``bits`` is None for a model that keeps floating-point weights. ``time_share`` is how much of
    the usual time a larger model gets. ``written_back`` are keys that
    mlx-lm reads at the top level of ``config.json`` and transformers 5 does not write there.
    """

    config_class: type[PreTrainedConfig]
    shape: dict[str, Any]
    dtype: str = "float32"
    bits: int | None = None
    time_share: float = 1.0
    written_back: dict[str, Any] = field(default_factory=dict)

    def config(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedConfig:
        """The transformers configuration, with the tokenizer's special tokens."""
        return self.config_class(
            vocab_size=VOCABULARY,
            max_position_embeddings=CONTEXT,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **self.shape,
        )


GROUP_SIZE = 32
THETA, GLOBAL_THETA = 10_000.0, 1_000_000.0
ROPE = {"rope_type": "default", "rope_theta": THETA}

RECIPES: dict[str, Recipe] = {
    "llama-1m-fp32": Recipe(
        LlamaConfig,
        {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 288,
         "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False,
         "rope_parameters": ROPE},
        written_back={"rope_theta": THETA},
    ),
    "gemma3-2.6m-4bit": Recipe(
        Gemma3TextConfig,
        {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 544,
         "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64,
         "query_pre_attn_scalar": 64, "sliding_window": 128, "sliding_window_pattern": 2,
         "tie_word_embeddings": True},
        bits=4,
        time_share=1.6,
        written_back={"sliding_window_pattern": 2, "rope_theta": GLOBAL_THETA,
                      "rope_local_base_freq": THETA},
    ),
    "qwen3-1m-8bit": Recipe(
        Qwen3Config,
        {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 320,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
         "tie_word_embeddings": False,
         "rope_parameters": ROPE},
        bits=8,
        written_back={"rope_theta": THETA},
    ),
    "mixtral-4e-4bit": Recipe(
        MixtralConfig,
        {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 256,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
         "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True,
         "router_aux_loss_coef": 0.01, "sliding_window": None, "tie_word_embeddings": False,
         "rope_parameters": ROPE},
        bits=4,
        time_share=1.7,
        written_back={"rope_theta": THETA},
    ),
    "phi3-1m-bf16": Recipe(
        Phi3Config,
        {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 320,
         "num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": False,
         "rope_parameters": ROPE},
        dtype="bfloat16",
        time_share=1.3,
        written_back={"rope_theta": THETA, "partial_rotary_factor": 1.0},
    ),
}  # fmt: skip
