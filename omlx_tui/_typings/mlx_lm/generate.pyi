from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx.nn import Module

class StopSequences:
    def __init__(self, stop_sequences: Sequence[Sequence[int]] | None = ...) -> None: ...

class TextStateMachine:
    def __init__(
        self, transitions: dict[str, list[tuple[str, str | None]]] | None = ...
    ) -> None: ...
    def make_state(self, initial: str = ...) -> Any: ...
    @staticmethod
    def step(state: Any, text: str) -> tuple[Any, str, str | None]: ...
    @staticmethod
    def split(state: Any, text: str) -> tuple[Any, list[tuple[str | None, str]]]: ...
    @staticmethod
    def flush(state: Any) -> tuple[Any, str, str | None]: ...

def make_text_state_machine(
    tokenizer: Any, stop_words: Sequence[str] | None = ...
) -> TextStateMachine: ...

class PromptProcessingBatch:
    class Response:
        uid: int
        progress: tuple[int, int]
        end_of_segment: bool
        end_of_prompt: bool

class GenerationBatch:
    class Response:
        uid: int
        token: int
        logprobs: mx.array
        finish_reason: str | None
        prompt_cache: list[Any] | None
        all_tokens: list[int] | None

class BatchGenerator:
    prompt_cache_nbytes: int
    def __init__(
        self,
        model: Module,
        *,
        completion_batch_size: int = ...,
        prefill_batch_size: int = ...,
        prefill_step_size: int = ...,
        stream: mx.Stream | None = ...,
    ) -> None: ...
    def insert(
        self,
        prompts: list[list[int]],
        *,
        max_tokens: list[int] | None = ...,
        caches: list[list[Any] | None] | None = ...,
        all_tokens: list[list[int]] | None = ...,
        samplers: list[Callable[[mx.array], mx.array]] | None = ...,
        logits_processors: list[list[Callable[[mx.array, mx.array], mx.array]]] | None = ...,
        stop_sequences: list[StopSequences] | None = ...,
    ) -> list[int]: ...
    def extract_cache(self, uids: list[int]) -> dict[int, tuple[list[Any], list[int]]]: ...
    def remove(self, uids: list[int]) -> object: ...
    def next(
        self,
    ) -> tuple[list[PromptProcessingBatch.Response], list[GenerationBatch.Response]]: ...
    def close(self) -> None: ...
