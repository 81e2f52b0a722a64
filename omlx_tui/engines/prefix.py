"""KV caches of finished requests, for the next prompt that begins alike. MLX thread only."""

from __future__ import annotations

from typing import Protocol

import mlx.core as mx
from mlx_lm.models.cache import LRUPromptCache

# A shorter common beginning saves less than copying its cache costs.
LEAST_TOKENS = 16

# Its index is a tree of Python dictionaries, a node per token, which no budget counts.
MOST_ENTRIES = 64

# LRUPromptCache serves several models; here each has its own.
_MODEL = "model"


class LayerCache(Protocol):
    """mlx-lm's cache of one layer and one sequence, as far as it is used here."""

    @property
    def state(self) -> object: ...

    @property
    def nbytes(self) -> int: ...


class PrefixCache:
    """One model's least recently used prefixes, within a limit that others set."""

    def __init__(self) -> None:
        self._entries = LRUPromptCache(max_size=MOST_ENTRIES)

    @property
    def nbytes(self) -> int:
        return self._entries.nbytes

    def fetch(self, prompt: list[int]) -> tuple[list[LayerCache] | None, int]:
        """A cache of the longest known beginning of the prompt, and its length in tokens.

        At least the last token of the prompt is left over, for the model to go on from. The cache
        is the caller's own.
        """
        cache, rest = self._entries.fetch_nearest_cache(_MODEL, prompt[:-1])
        cached_tokens = len(prompt) - 1 - len(rest)
        if cache is None or cached_tokens < LEAST_TOKENS:
            return None, 0
        return cache, cached_tokens

    def insert(self, tokens: list[int], cache: list[LayerCache]) -> None:
        """Keep a cache that holds exactly these tokens."""
        if len(tokens) < LEAST_TOKENS:
            return
        # Lazy slices of the batch would keep all of the batch's rows alive.
        mx.eval([layer.state for layer in cache])  # pyright: ignore[reportUnknownMemberType]
        self._entries.insert_cache(_MODEL, tokens, cache)

    def shrink_to(self, limit_bytes: int) -> None:
        """Let the longest unused go until the rest takes no more than that."""
        self._entries.trim_to(n_bytes=limit_bytes)

    def clear(self) -> None:
        self._entries.trim_to(n_sequences=0)
