"""What a config says about its KV cache, against what mlx-lm's own models keep.

Small models of each kind are built and called, without evaluating anything: the shapes of lazy
arrays are known, and a cache's ``nbytes`` goes by them.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from omlx_tui.engines.kv import KVLayers, KVShape
from omlx_tui.engines.kv_config import WINDOWED, float_bytes, kv_shape

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
LATENT = {
    "moe_intermediate_size": 32,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 24,
    "v_head_dim": 20,
    "n_routed_experts": None,
    "first_k_dense_replace": 3,
}
MODELS: dict[str, dict[str, object]] = {
    "llama": {"num_hidden_layers": 3, "head_dim": 24},
    "qwen2": {"num_hidden_layers": 2},
    "phi3": {"num_hidden_layers": 2, "sliding_window": 16},
    "qwen3": {
        "num_hidden_layers": 2,
        "head_dim": 32,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "ministral3": {
        "num_hidden_layers": 2,
        "head_dim": 32,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "rope_theta": 1e4,
            "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": 0.1,
        },
    },
    "gemma3_text": {"num_hidden_layers": 7, "head_dim": 32, "sliding_window": 16},
    "cohere2": {"num_hidden_layers": 4, "head_dim": 16, "sliding_window": 16},
    "gpt_oss": {
        "num_hidden_layers": 4,
        "head_dim": 32,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "rope_scaling": {"rope_type": "default"},
    },
    "olmo3": {"num_hidden_layers": 4, "sliding_window": 16},
    "gemma4_text": {
        "num_hidden_layers": 10,
        "num_kv_shared_layers": 5,
        "head_dim": 32,
        "global_head_dim": 48,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 64,
    },
    "deepseek_v2": {
        "num_hidden_layers": 2,
        **LATENT,
        "rope_scaling": {
            "factor": 2.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 64,
        },
    },
    "deepseek_v3": {"num_hidden_layers": 2, **LATENT},
    "deepseek_v32": {
        "num_hidden_layers": 2,
        **LATENT,
        "index_head_dim": 16,
        "index_n_heads": 2,
        "index_topk": 8,
    },
    "gpt2": {
        "n_ctx": 64,
        "n_embd": 64,
        "n_head": 4,
        "n_layer": 2,
        "n_positions": 64,
        "layer_norm_epsilon": 1e-5,
        "num_key_value_heads": 4,
    },
    "qwen3_next": {
        "num_hidden_layers": 4,
        "head_dim": 32,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "num_experts": 0,
        "num_experts_per_tok": 1,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "partial_rotary_factor": 0.5,
        "full_attention_interval": 4,
        "attention_bias": False,
        "norm_topk_prob": False,
    },
    "mamba2": {
        "num_hidden_layers": 2,
        "num_heads": 4,
        "head_dim": 32,
        "state_size": 16,
        "conv_kernel": 4,
        "n_groups": 2,
        "expand": 2,
        "use_bias": False,
        "use_conv_bias": True,
        "layer_norm_epsilon": 1e-5,
        "chunk_size": 64,
        "time_step_rank": "auto",
        "time_step_limit": [0.0, 10.0],
        "time_step_min": 0.001,
        "time_step_max": 0.1,
    },
    "granitemoehybrid": {
        "num_hidden_layers": 3,
        "layer_types": ["mamba", "attention", "mamba"],
        "mamba_n_heads": 4,
        "mamba_d_head": 32,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
        "embedding_multiplier": 1.0,
        "attention_multiplier": 1.0,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "attention_bias": False,
        "shared_intermediate_size": 32,
        "position_embedding_type": "rope",
    },
}


def cache_of(model_type: str, config: dict[str, object], tokens: int) -> int:
    """Bytes that mlx-lm's cache has after that many tokens, the last one decoded."""
    module = importlib.import_module(f"mlx_lm.models.{model_type}")
    model = module.Model(module.ModelArgs.from_dict(dict(config)))
    cache = make_prompt_cache(model)
    model(mx.zeros((1, tokens - 1), dtype=mx.int32), cache=cache)
    model(mx.zeros((1, 1), dtype=mx.int32), cache=cache)
    return sum(layer.nbytes for layer in cache)


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize("tokens", [40, 600])
def test_a_config_tells_what_the_cache_will_hold(model_type: str, tokens: int) -> None:
    """For each way in which architectures differ: grouped, latent, windowed, without attention."""
    config = {"model_type": model_type, **SMALL, **MODELS[model_type]}
    shape = kv_shape(config, float_bytes=4)
    assert shape.bytes_for(tokens) == cache_of(model_type, config, tokens)


def test_the_windows_are_those_that_mlx_lm_keeps() -> None:
    """The table names every architecture whose code has a rotating cache, and no other."""
    spec = importlib.util.find_spec("mlx_lm.models")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    rotating = {
        path.stem
        for path in folder.glob("*.py")
        if "RotatingKVCache(" in path.read_text(encoding="utf-8")
    }
    assert set(WINDOWED) == rotating - {"cache"}


def test_a_model_that_also_sees_is_read_by_its_text_part() -> None:
    """Under its own names; the outer model type serves if the inner one is missing."""
    text = {**SMALL, **MODELS["gemma3_text"], "model_type": "gemma3_text"}
    nested = kv_shape({"model_type": "gemma3", "text_config": text}, float_bytes=2)
    assert nested == kv_shape(text, float_bytes=2)
    del text["model_type"]
    assert kv_shape({"model_type": "gemma3", "text_config": text}, float_bytes=2) == nested


def test_heads_may_differ_from_layer_to_layer() -> None:
    """As openelm's do."""
    config = {"num_transformer_layers": 3, "num_kv_heads": [1, 2, 3], "head_dim": 8}
    assert kv_shape(config, float_bytes=2).bytes_per_token == (1 + 2 + 3) * 2 * 8 * 2


def test_a_pattern_may_be_spelled() -> None:
    """As exaone4's is: L is local, G global."""
    config = {**SMALL, "model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": 16}
    config["sliding_window_pattern"] = "LLLG"
    local = 2 * 2 * 16 * 2
    assert kv_shape(config, float_bytes=2) == KVShape((KVLayers(local), KVLayers(local * 3, 16)))


@pytest.mark.parametrize(
    ("facts", "attention_layers"),
    [
        ({"model_type": "jamba", "attn_layer_period": 4, "attn_layer_offset": 1}, 2),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*EM-*"}, 2),
        ({"model_type": "lfm2", "full_attn_idxs": [2, 5]}, 2),
        ({"model_type": "lfm2", "layer_types": ["conv", "full_attention"] * 4}, 4),
        ({"model_type": "kimi_linear", "linear_attn_config": {"kda_layers": [1, 2, 3]}}, 5),
        ({"model_type": "mamba"}, 0),
        ({"model_type": "rwkv7"}, 0),
    ],
)
def test_layers_without_attention_keep_no_tokens(
    facts: dict[str, object], attention_layers: int
) -> None:
    """However a config says which ones they are."""
    shape = kv_shape({**SMALL, "num_hidden_layers": 8, **facts}, float_bytes=2)
    assert shape.bytes_per_token == attention_layers * 2 * 2 * 16 * 2


def test_a_config_without_numbers_counts_as_a_large_model() -> None:
    """Half a MiB per token: rather too much than too little."""
    for config in ({}, {"num_hidden_layers": "many", "layer_types": [], "head_dim": True}):
        assert kv_shape(config, float_bytes=2).bytes_per_token == 512 * 1024


@pytest.mark.parametrize(
    ("config", "is_raised", "expected"),
    [
        ({"dtype": "bfloat16"}, False, 2),
        ({"torch_dtype": "float16"}, False, 2),
        ({"dtype": "bfloat16"}, True, 4),
        ({"dtype": "float32", "quantization": {"bits": 4}}, False, 4),
        ({"text_config": {"dtype": "float32"}}, False, 4),
        ({}, False, 2),
    ],
)
def test_a_number_is_as_wide_as_the_activations(
    config: dict[str, object], is_raised: bool, expected: int
) -> None:
    """Quantised or not."""
    assert float_bytes(config, is_raised=is_raised) == expected
