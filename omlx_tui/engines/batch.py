"""One resident model on the MLX thread: mlx-lm's continuous batch, a pass per step."""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import BatchGenerator, StopSequences

from omlx_tui.engines.commands import (
    FailedOutput,
    PrefillOutput,
    StepOutput,
    Submit,
    TokenOutput,
)
from omlx_tui.engines.sampling import make_processors, make_sampler
from omlx_tui.engines.types import SchedulerConfig


class ModelBatch:
    """The model, its running requests and their KV caches. Lives and dies on the MLX thread."""

    def __init__(self, model: nn.Module, config: SchedulerConfig, stream: mx.Stream) -> None:
        self._model = model
        self._config = config
        self._stream = stream
        self._generator = self._new_generator()
        self._uid_of: dict[str, int] = {}
        self._request_of: dict[int, str] = {}

    def has_work(self) -> bool:
        return bool(self._uid_of)

    @property
    def kv_bytes(self) -> int:
        return self._generator.prompt_cache_nbytes

    def submit(self, command: Submit) -> None:
        (uid,) = self._generator.insert(
            [list(command.prompt)],
            max_tokens=[command.max_tokens],
            samplers=[make_sampler(command.sampling)],
            logits_processors=[list(make_processors(command.sampling))],
            stop_sequences=[_stop_sequences(command.stop_tokens)],
        )
        self._uid_of[command.request_id] = uid
        self._request_of[uid] = command.request_id

    def abort(self, request_id: str) -> None:
        """Take a request out of the batch; one that has ended is ignored."""
        uid = self._uid_of.pop(request_id, None)
        if uid is not None:
            del self._request_of[uid]
            self._generator.remove([uid])

    def step(self) -> tuple[StepOutput, ...]:
        """One token for every decoding request, and one slice of the waiting prompts."""
        prompt_responses, token_responses = self._generator.next()
        outputs: list[StepOutput] = [
            PrefillOutput(self._request_of[response.uid], *response.progress)
            for response in prompt_responses
        ]
        for response in token_responses:
            request_id = self._request_of[response.uid]
            outputs.append(TokenOutput(request_id, response.token, response.finish_reason))
            if response.finish_reason is not None:
                del self._uid_of[request_id], self._request_of[response.uid]
        return tuple(outputs)

    def fail(self, detail: str) -> tuple[StepOutput, ...]:
        """Give up every running request after a step that raised, and start with a clean batch."""
        outputs = tuple(FailedOutput(request_id, detail) for request_id in self._uid_of)
        self._uid_of.clear()
        self._request_of.clear()
        self._generator.close()
        self._generator = self._new_generator()
        return outputs

    def close(self) -> None:
        """Let go of the batch; the memory falls when the last reference to this object does."""
        self._uid_of.clear()
        self._request_of.clear()
        self._generator.close()

    def _new_generator(self) -> BatchGenerator:
        return BatchGenerator(
            self._model,
            completion_batch_size=self._config.max_batch_size,
            prefill_batch_size=self._config.prefill_batch_size,
            prefill_step_size=self._config.prefill_step_tokens,
            stream=self._stream,
        )


@lru_cache(maxsize=64)
def _stop_sequences(stop_tokens: tuple[int, ...]) -> StopSequences:
    return StopSequences([(token,) for token in stop_tokens])
