"""The shape of a model's KV cache, read from its config.json as mlx-lm will understand it.

What a model's paper says does not matter here, but what mlx-lm keeps: it ignores the sliding
window of many architectures and then holds every token. ``tests/engines/test_kv_shapes.py`` builds
small models of each kind and compares. In doubt a layer counts as one that holds every token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import cast

from omlx_tui.engines.kv import KVCosts, KVLayers, KVShape
from omlx_tui.engines.model_config import context_tokens
from omlx_tui.engines.types import SchedulerConfig

Config = Mapping[str, object]

# Stands in for each number that a config leaves out: a 7B model without grouped queries,
# 512 KiB per token in half precision. Few models of today cost as much.
_UNSTATED_LAYERS = 32
_UNSTATED_HEADS = 32
_UNSTATED_HEAD_SIZE = 128

# mlx-lm holds these states in fp32, whatever the weights are.
_STATE_BYTES = 4

# The architectures for which mlx-lm really drops what has left the window, with the window it
# assumes when the config names none.
WINDOWED: Mapping[str, int | None] = {
    "afmoe": 2048,
    "baichuan_m1": None,
    "cohere2": 4096,
    "exaone4": None,
    "exaone_moe": None,
    "gear": None,
    "gemma3_text": 512,
    "gemma3n": None,
    "gemma4_text": 512,
    "gpt_oss": 128,
    "iquestloopcoder": None,
    "laguna": None,
    "llama": None,
    "mellum": None,
    "mimo_v2_flash": None,
    "ministral3": None,
    "muse_glimmer": None,
    "muse_spark": None,
    "olmo3": None,
    "plamo3": None,
    "recurrent_gemma": None,
    "spark2_5": None,
    "step3p5": 512,
}

# mlx-lm's names for types that it runs with another type's code.
_SAME_AS = {
    "mistral": "llama",
    "iquestcoder": "llama",
    "xverse": "llama",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_text",
    "falcon_mamba": "mamba",
}

# One layer in so many sees everything, where mlx-lm goes by a pattern and not by layer_types.
_PATTERNS = {"gemma3_text": 6, "cohere2": 4}
# The same where layer_types decides and may be missing.
_DEFAULT_PATTERNS = {"gemma4_text": 5, "gpt_oss": 2, "olmo3": 4}

_LAYER_KEYS = (
    "num_hidden_layers",
    "n_layers",
    "n_layer",
    "num_layers",
    "num_transformer_layers",
)
_HEAD_KEYS = ("num_attention_heads", "n_heads", "n_head", "num_heads")
_KV_HEAD_KEYS = ("num_key_value_heads", "n_kv_heads", "num_kv_heads")
_HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model", "model_dim")
_WINDOW_KEYS = (
    "sliding_window",
    "sliding_window_size",
    "attention_window_size",
    "window_size",
    "loop_window_size",
)
_STATE_ONLY = frozenset({"mamba", "mamba2", "rwkv7"})


class LayerKind(Enum):
    """What a layer keeps of a sequence."""

    FULL = "every token"
    WINDOW = "the last tokens"
    STATE = "a state of constant size"
    NOTHING = "nothing"


# Spellings of layer_types and its kin; what isn't here counts as FULL.
_KINDS = {
    "sliding_attention": LayerKind.WINDOW,
    "linear_attention": LayerKind.STATE,
    "mamba": LayerKind.STATE,
    "mamba2": LayerKind.STATE,
    "conv": LayerKind.STATE,
    "recurrent": LayerKind.STATE,
    "M": LayerKind.STATE,
    "mlp": LayerKind.NOTHING,
    "moe": LayerKind.NOTHING,
    "-": LayerKind.NOTHING,
    "E": LayerKind.NOTHING,
}


def kv_costs(
    config: Config, scheduler: SchedulerConfig, *, is_raised: bool, context_limit: int | None = None
) -> KVCosts:
    """What requests to a model will cost; the same before it is loaded and after.

    ``is_raised``: its weights are held as fp32, see ``SchedulerConfig.raise_to_fp32_on_cpu``.
    """
    own_context = context_tokens(config)
    return KVCosts(
        shape=kv_shape(config, float_bytes=float_bytes(config, is_raised=is_raised)),
        prefill_step=scheduler.prefill_step_tokens,
        context_tokens=min(own_context, context_limit or own_context),
    )


def kv_shape(config: Config, *, float_bytes: int) -> KVShape:
    """The shape of the cache, for activations of that many bytes per number.

    Numbers that the config doesn't name are taken from a model that is larger than most, so that
    the answer errs on the side of too much.
    """
    text = _text_config(config)
    model_type = _model_type(text)
    kinds = _layer_kinds(text, model_type)
    window = _window(text, model_type)
    full_count = kinds.count(LayerKind.FULL)
    window_count = kinds.count(LayerKind.WINDOW)
    if window is None:
        full_count, window_count = full_count + window_count, 0
    groups: list[KVLayers] = []
    if full_count:
        per_token = _numbers_per_token(text, model_type, full_count, kind=LayerKind.FULL)
        groups.append(KVLayers(per_token * float_bytes))
    if window_count:
        per_token = _numbers_per_token(text, model_type, window_count, kind=LayerKind.WINDOW)
        groups.append(KVLayers(per_token * float_bytes, window))
    states = kinds.count(LayerKind.STATE) + (full_count if model_type == "falcon_h1" else 0)
    return KVShape(tuple(groups), constant_bytes=states * _state_numbers(text) * _STATE_BYTES)


def float_bytes(config: Config, *, is_raised: bool) -> int:
    """Bytes of one number of the activations, which the KV cache is made of.

    Quantised weights make no difference to it. ``is_raised``: held as fp32 whatever the file says.
    """
    stated = config.get("dtype") or config.get("torch_dtype")
    nested = _text_config(config)
    stated = stated or nested.get("dtype") or nested.get("torch_dtype")
    return 4 if is_raised or stated == "float32" else 2


def _text_config(config: Config) -> Config:
    """Where the language model is described: models that also see have a part for it."""
    for key in ("text_config", "language_config", "llm_config"):
        nested = config.get(key)
        if isinstance(nested, dict):
            return {"model_type": config.get("model_type"), **cast("dict[str, object]", nested)}
    return config


def _model_type(text: Config) -> str:
    stated = str(text.get("model_type", "")).replace("-", "_")
    return _SAME_AS.get(stated, stated)


def _layer_kinds(text: Config, model_type: str) -> list[LayerKind]:
    count = _int(text, *_LAYER_KEYS) or _UNSTATED_LAYERS
    shared = _int(text, "num_kv_shared_layers") or 0
    spelled = _spelled_kinds(text, model_type, count)
    if spelled is not None:
        return spelled[: max(1, len(spelled) - shared)]
    return [LayerKind.FULL if _sees_all(text, index) else LayerKind.STATE for index in range(count)]


def _spelled_kinds(text: Config, model_type: str, count: int) -> list[LayerKind] | None:
    """The kinds where a config lists them or names their rhythm; None if it does neither."""
    if model_type in _STATE_ONLY:
        return [LayerKind.STATE] * count
    if pattern := _pattern(text, model_type):
        return [
            LayerKind.WINDOW if pattern[index % len(pattern)] == "L" else LayerKind.FULL
            for index in range(count)
        ]
    for key in ("hybrid_override_pattern", "layers_block_type", "layer_types", "block_types"):
        names = text.get(key)
        if isinstance(names, str | list) and names:
            kinds = [_kind(str(name), model_type) for name in cast("list[object]", names)]
            # nemotron_h's list says how many layers there are; recurrent_gemma's is repeated.
            length = len(kinds) if key in _DEFINE_THE_COUNT else count
            return [kinds[index % len(kinds)] for index in range(length)]
    hybrid = text.get("hybrid_layer_pattern")
    if isinstance(hybrid, list):
        flags = cast("list[object]", hybrid)
        return [LayerKind.WINDOW if flag == 1 else LayerKind.FULL for flag in flags]
    return None


_DEFINE_THE_COUNT = frozenset({"hybrid_override_pattern", "layers_block_type"})


def _pattern(text: Config, model_type: str) -> str:
    """L for a layer with a window, G for one that sees all; empty if there is no such rhythm."""
    stated = text.get("sliding_window_pattern")
    if isinstance(stated, str) and set(stated) <= {"L", "G"}:
        return stated
    every: int | None = None
    if model_type in _PATTERNS:
        every = _int(text, "sliding_window_pattern") or _PATTERNS[model_type]
    elif model_type in _DEFAULT_PATTERNS and not text.get("layer_types"):
        every = _int(text, "sliding_window_pattern") or _DEFAULT_PATTERNS[model_type]
    return "L" * (every - 1) + "G" if every else ""


def _kind(name: str, model_type: str) -> LayerKind:
    if name == "attention" and model_type == "recurrent_gemma":
        return LayerKind.WINDOW
    return _KINDS.get(name, LayerKind.FULL)


def _sees_all(text: Config, index: int) -> bool:
    """Whether a layer is an attention layer, where every so many are and the others are not."""
    if period := _int(text, "attn_layer_period"):
        return index % period == (_int(text, "attn_layer_offset") or 0)
    if interval := _int(text, "full_attention_interval"):
        return (index + 1) % interval == 0
    if isinstance(indices := text.get("full_attn_idxs"), list):
        return index in indices
    if isinstance(linear := text.get("linear_attn_config"), dict):
        return index + 1 not in cast("dict[str, list[int]]", linear).get("kda_layers", ())
    return True


def _window(text: Config, model_type: str) -> int | None:
    if model_type not in WINDOWED:
        return None
    return _int(text, *_WINDOW_KEYS) or WINDOWED[model_type]


@dataclass(frozen=True, slots=True)
class _Heads:
    count: int
    key_size: int
    value_size: int


def _numbers_per_token(text: Config, model_type: str, layer_count: int, *, kind: LayerKind) -> int:
    """Numbers kept per token by all layers of one kind."""
    if (latent := _int(text, "kv_lora_rank")) is not None:
        return layer_count * _latent_numbers(text, model_type, latent)
    if isinstance(listed := text.get("num_kv_heads"), list):
        # One entry per layer, each with as many heads as it needs.
        counts = [count for count in cast("list[object]", listed) if isinstance(count, int)]
        return sum(counts) * 2 * _heads(text, kind).key_size
    heads = _heads(text, kind)
    return layer_count * heads.count * (heads.key_size + heads.value_size)


def _latent_numbers(text: Config, model_type: str, latent: int) -> int:
    """Latent attention, by what mlx-lm keeps: most keep the latents, some the whole heads."""
    rope = _int(text, "qk_rope_head_dim") or 0
    if model_type in ("deepseek_v2", "minicpm3"):
        nope = _int(text, "qk_nope_head_dim") or 0
        value = _int(text, "v_head_dim") or _heads(text, LayerKind.FULL).value_size
        return (_int(text, *_HEAD_KEYS) or _UNSTATED_HEADS) * (nope + rope + value)
    # An indexer keeps its keys in a cache of its own, with values that it doesn't use.
    indexer = 2 * (_int(text, "index_head_dim") or 0)
    attentions = 2 if model_type.startswith("longcat") else 1
    return attentions * (latent + rope) + indexer


def _heads(text: Config, kind: LayerKind) -> _Heads:
    queries = _int(text, *_HEAD_KEYS) or _UNSTATED_HEADS
    hidden = _int(text, *_HIDDEN_KEYS)
    size = _int(text, "head_dim") or (hidden // queries if hidden else _UNSTATED_HEAD_SIZE)
    count = _int(text, *_KV_HEAD_KEYS) or queries
    value_size = _int(text, "v_head_dim") or size
    if kind is LayerKind.WINDOW:
        size = _int(text, "swa_head_dim") or size
        count = _int(text, "swa_num_key_value_heads") or count
        value_size = _int(text, "swa_v_head_dim") or value_size
    elif (wide := _int(text, "global_head_dim")) is not None:
        size = value_size = wide
        if text.get("attention_k_eq_v") is True:
            count = _int(text, "num_global_key_value_heads") or count
    return _Heads(count, size, value_size)


def _state_numbers(text: Config) -> int:
    """Numbers that a layer without a token cache keeps; 0 where the config doesn't tell.

    The largest such states are a few MB per sequence, the unknown ones are small.
    """
    value_heads = _int(text, "linear_num_value_heads")
    if value_heads is not None:
        key_size = _int(text, "linear_key_head_dim") or _UNSTATED_HEAD_SIZE
        value_size = _int(text, "linear_value_head_dim") or _UNSTATED_HEAD_SIZE
        key_heads = _int(text, "linear_num_key_heads") or value_heads
        channels = 2 * key_heads * key_size + value_heads * value_size
        kernel = _int(text, "linear_conv_kernel_dim") or 4
        return value_heads * key_size * value_size + (kernel - 1) * channels
    heads = _int(text, "mamba_num_heads", "mamba_n_heads", "num_heads")
    size = _int(text, "mamba_head_dim", "mamba_d_head", "head_dim")
    state = _int(text, "ssm_state_size", "mamba_d_state", "state_size")
    if heads is None or size is None or state is None:
        return 0
    groups = _int(text, "n_groups", "mamba_n_groups") or 1
    kernel = _int(text, "conv_kernel", "mamba_d_conv") or 4
    return heads * size * state + (kernel - 1) * (heads * size + 2 * groups * state)


def _int(config: Config, *keys: str) -> int | None:
    """The first of these that is a positive number."""
    return next(_positive(config, keys), None)


def _positive(config: Config, keys: tuple[str, ...]) -> Iterator[int]:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            yield value
