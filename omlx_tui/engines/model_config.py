"""What a model's own JSON files say that serving needs. Reads text only, runs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from omlx_tui.engines.types import SamplingParams

# Names under which configs state how many tokens a model was trained to read.
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")

# For models whose config names no limit (state-space models have none).
UNSTATED_CONTEXT_TOKENS = 131_072


def read_json_object(path: Path) -> dict[str, object]:
    """Read a JSON object; a missing file is an empty one.

    Raises:
        ValueError: the file is no JSON object; the message names it.
    """
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} is not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    return cast("dict[str, object]", content)


def context_tokens(config: Mapping[str, object]) -> int:
    """The most tokens that prompt and answer may have together."""
    nested = config.get("text_config")
    text_config = cast("Mapping[str, object]", nested if isinstance(nested, dict) else {})
    for source in (config, text_config):
        for key in _CONTEXT_KEYS:
            value = source.get(key)
            if isinstance(value, int) and value > 0:
                return value
    return UNSTATED_CONTEXT_TOKENS


def sampling_defaults(generation_config: Mapping[str, object]) -> SamplingParams:
    """The author's sampling defaults; greedy unless the file asks for sampling."""
    if generation_config.get("do_sample") is False:
        return SamplingParams(temperature=0.0)
    temperature = _number(generation_config.get("temperature"))
    top_k = _number(generation_config.get("top_k"))
    return SamplingParams(
        temperature=0.0 if temperature is None else temperature,
        top_p=_number(generation_config.get("top_p")),
        top_k=None if top_k is None else int(top_k),
        min_p=_number(generation_config.get("min_p")),
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
