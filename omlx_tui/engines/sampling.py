"""How one request's tokens are chosen: mlx-lm's filters, with a random stream per request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import mlx.core as mx
from mlx_lm.sample_utils import (
    apply_min_p,
    apply_top_k,
    apply_top_p,
    greedy_sampler,
    make_logits_processors,
)

from omlx_tui.engines.types import SamplingParams

Sampler = Callable[[mx.array], mx.array]
LogitsProcessor = Callable[[mx.array, mx.array], mx.array]


def make_sampler(sampling: SamplingParams) -> Sampler:
    """A sampler from log-probabilities of shape (1, vocabulary) to a token id of shape (1,).

    A greedy request gets mlx-lm's shared sampler, which a batch runs once for all its rows. Any
    other has a random key of its own, so a seed gives the same answer whoever else is served.
    """
    if not sampling.temperature:
        return greedy_sampler
    return _KeyedSampler(sampling)


class _KeyedSampler:
    """Filters, then draws with a key that is split once per token."""

    def __init__(self, sampling: SamplingParams) -> None:
        self._inverse_temperature = 1 / (sampling.temperature or 1.0)
        self._key = mx.random.key((sampling.seed or 0) % 2**64)
        self._filters: list[Sampler] = []
        if sampling.top_p and sampling.top_p < 1:
            self._filters.append(partial(apply_top_p, top_p=sampling.top_p))
        if sampling.min_p:
            self._filters.append(partial(apply_min_p, min_p=sampling.min_p))
        self._top_k = sampling.top_k or 0

    def __call__(self, logprobs: mx.array) -> mx.array:
        for keep_likely in self._filters:
            logprobs = keep_likely(logprobs)
        # mlx-lm raises for a top_k that excludes nothing; clients send such values.
        if 0 < self._top_k < logprobs.shape[-1]:
            logprobs = apply_top_k(logprobs, self._top_k)
        self._key, draw_key = mx.random.split(self._key)
        return mx.random.categorical(logprobs * self._inverse_temperature, key=draw_key)


def make_processors(sampling: SamplingParams) -> Sequence[LogitsProcessor]:
    """mlx-lm's penalties, for a request that asks for any."""
    return make_logits_processors(
        presence_penalty=sampling.presence_penalty or None,
        frequency_penalty=sampling.frequency_penalty or None,
    )
