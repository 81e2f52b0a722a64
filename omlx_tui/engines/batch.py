"""One resident model on the MLX thread: mlx-lm's continuous batch, a pass per step."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import BatchGenerator, GenerationBatch, PromptProcessingBatch, StopSequences
from mlx_lm.models.cache import KVCache, make_prompt_cache

from omlx_tui.engines.commands import (
    FailedOutput,
    PrefillOutput,
    StepOutput,
    Submit,
    TokenLogprobs,
    TokenOutput,
)
from omlx_tui.engines.prefix import PrefixCache
from omlx_tui.engines.sampling import make_processors, make_sampler
from omlx_tui.engines.types import SchedulerConfig


class ModelBatch:
    """The model, its running requests and their KV caches. Lives and dies on the MLX thread."""

    def __init__(self, model: nn.Module, config: SchedulerConfig, stream: mx.Stream) -> None:
        self._model = model
        self._config = config
        self._stream = stream
        self._generator = self._new_generator()
        self._prefixes = PrefixCache()
        # A window that has begun to turn and a recurrent state can't be cut back to a prompt.
        self._caches_can_be_cut = all(type(c) is KVCache for c in make_prompt_cache(model))
        self._kv_budget_bytes: int | None = None
        self._uid_of: dict[str, int] = {}
        self._request_of: dict[int, str] = {}
        self._cached_tokens: dict[int, int] = {}
        self._top_logprobs: dict[int, int] = {}

    def has_work(self) -> bool:
        return bool(self._uid_of)

    @property
    def kv_bytes(self) -> int:
        return self._generator.prompt_cache_nbytes

    @property
    def prefix_cache_bytes(self) -> int:
        return self._prefixes.nbytes

    def limit_kv(self, budget_bytes: int | None) -> None:
        """What live caches and kept prefixes may take together; the prefixes give way."""
        self._kv_budget_bytes = budget_bytes
        self._make_prefixes_fit()

    def drop_prefixes(self) -> None:
        self._prefixes.clear()

    def submit(self, command: Submit) -> None:
        prompt = list(command.prompt)
        cache, cached_tokens = None, 0
        if self._config.prefix_cache:
            cache, cached_tokens = self._prefixes.fetch(prompt)
        (uid,) = self._generator.insert(
            [prompt[cached_tokens:]],
            caches=[cache],
            all_tokens=[prompt[:cached_tokens]],
            max_tokens=[command.max_tokens],
            samplers=[make_sampler(command.sampling)],
            logits_processors=[list(make_processors(command.sampling))],
            stop_sequences=[_stop_sequences(command.stop_tokens)],
        )
        self._uid_of[command.request_id] = uid
        self._request_of[uid] = command.request_id
        self._cached_tokens[uid] = cached_tokens
        if command.top_logprobs is not None:
            self._top_logprobs[uid] = command.top_logprobs
        self._make_prefixes_fit()

    def abort(self, request_id: str) -> None:
        """Take a request out of the batch; one that has ended is ignored."""
        uid = self._uid_of.get(request_id)
        if uid is not None:
            self._forget(uid)
            self._generator.remove([uid])

    def step(self) -> tuple[StepOutput, ...]:
        """One token for every decoding request, and one slice of the waiting prompts."""
        prompt_responses, token_responses = self._generator.next()
        outputs: list[StepOutput] = [self._prefilled(response) for response in prompt_responses]
        outputs += [self._generated(response) for response in token_responses]
        if self._config.prefix_cache:
            if not self._caches_can_be_cut:
                self._keep_read_prompts(prompt_responses)
            # Before anything is reported: nobody ever sees more than the budget.
            self._make_prefixes_fit()
        return tuple(outputs)

    def fail(self, detail: str) -> tuple[StepOutput, ...]:
        """Give up every running request after a step that raised, and start with a clean batch.

        The prefixes go as well: what raised may have been a lack of memory.
        """
        outputs = tuple(FailedOutput(request_id, detail) for request_id in self._uid_of)
        self.close()
        self._generator = self._new_generator()
        return outputs

    def close(self) -> None:
        """Let go of the batch; the memory falls when the last reference to this object does."""
        self._uid_of.clear()
        self._request_of.clear()
        self._cached_tokens.clear()
        self._top_logprobs.clear()
        self._prefixes.clear()
        self._generator.close()

    def _prefilled(self, response: PromptProcessingBatch.Response) -> PrefillOutput:
        cached_tokens = self._cached_tokens[response.uid]
        read_tokens, _ = response.progress
        return PrefillOutput(
            self._request_of[response.uid], cached_tokens + read_tokens, cached_tokens
        )

    def _generated(self, response: GenerationBatch.Response) -> TokenOutput:
        output = TokenOutput(
            self._request_of[response.uid],
            response.token,
            response.finish_reason,
            self._logprobs(response),
        )
        if response.finish_reason is not None:
            self._forget(response.uid)
        if response.prompt_cache and response.all_tokens and self._config.prefix_cache:
            with mx.stream(self._stream):
                self._prefixes.insert(response.all_tokens, response.prompt_cache)
        return output

    def _logprobs(self, response: GenerationBatch.Response) -> TokenLogprobs | None:
        """As numbers: the array that they come from stays on this thread."""
        count = self._top_logprobs.get(response.uid)
        if count is None:
            return None
        with mx.stream(self._stream):
            every = response.logprobs
            top: list[tuple[int, float]] = []
            if count:
                likeliest = mx.argpartition(-every, count - 1)[:count]
                tokens = cast("list[int]", likeliest.tolist())
                values = cast("list[float]", every[likeliest].tolist())
                top = sorted(zip(tokens, values, strict=True), key=lambda pair: -pair[1])
            chosen = cast("float", every[response.token].item())
        return TokenLogprobs(chosen, tuple(top))

    def _keep_read_prompts(self, responses: list[PromptProcessingBatch.Response]) -> None:
        """Keep the caches of prompts that have just been read, but for their last token.

        The finished answer's cache could not be cut back to serve the same prompt again.
        """
        read = [r.uid for r in responses if r.end_of_segment and not r.end_of_prompt]
        if not read:
            return
        with mx.stream(self._stream):
            for cache, tokens in self._generator.extract_cache(read).values():
                self._prefixes.insert(list(tokens), cache)

    def _make_prefixes_fit(self) -> None:
        if self._kv_budget_bytes is not None:
            self._prefixes.shrink_to(self._kv_budget_bytes - self.kv_bytes)

    def _forget(self, uid: int) -> None:
        del self._uid_of[self._request_of.pop(uid)], self._cached_tokens[uid]
        self._top_logprobs.pop(uid, None)

    def _new_generator(self) -> BatchGenerator:
        return BatchGenerator(
            self._model,
            completion_batch_size=self._config.max_batch_size,
            # mlx-lm would raise the batch to the size of the prefill.
            prefill_batch_size=min(self._config.prefill_batch_size, self._config.max_batch_size),
            prefill_step_size=self._config.prefill_step_tokens,
            stream=self._stream,
        )


@lru_cache(maxsize=64)
def _stop_sequences(stop_tokens: tuple[int, ...]) -> StopSequences:
    return StopSequences([(token,) for token in stop_tokens])
