"""What crosses the border between an engine and whoever uses it: immutable values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation, as a chat template takes it."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen; ``None`` means the model's own default.

    The model's default comes from its ``generation_config.json``; a model without one is
    decoded greedily (temperature 0).
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt for one model.

    ``max_tokens`` of ``None`` means: until the model stops or its context is full.
    """

    request_id: str
    messages: tuple[Message, ...]
    max_tokens: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A request whose prompt has been rendered, tokenised and found to fit the context.

    ``max_tokens`` is resolved: at least 1, and prompt and answer fit the context and the KV
    budget together.
    """

    request: GenerationRequest
    prompt: tuple[int, ...]
    max_tokens: int


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """How much of the prompt is in the KV cache, counting what a prefix cache already held."""

    processed_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that became printable, and how many tokens have been generated so far.

    ``text`` may be empty while a character or a possible stop string is held back.
    """

    text: str
    generated_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The one terminal event of a generation.

    ``cached_tokens`` is how many of the prompt's tokens came from the prefix cache.
    """

    reason: FinishReason
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0
    detail: str = ""


GenerationEvent = PrefillProgress | TextDelta | Finished


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Bytes of weights evaluated so far, of how many."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What a backend needs to know to load a model.

    Attributes:
        kv_budget_bytes: what its requests' KV caches and its prefix cache may take together; None
            is no limit. ``Engine.set_kv_budget`` changes it later.
        context_limit: the most tokens of prompt and answer together, where that is less than the
            model's own context.
        sampling: defaults that come before those of the model's ``generation_config.json``.
    """

    model_id: str
    path: Path
    kind: Literal["llm"] = "llm"
    weights_bytes: int = 0
    kv_budget_bytes: int | None = None
    context_limit: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """MLX's own figures, as the MLX thread last saw them."""

    active_bytes: int = 0
    cache_bytes: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """An engine's live figures.

    Attributes:
        active_requests: being prefilled or generating.
        queued_requests: waiting, for room in the KV budget or for a place in the batch.
        kv_bytes: held by the KV caches of running requests.
        prefix_cache_bytes: held by caches of finished requests, for the next ones to begin with.
    """

    active_requests: int = 0
    queued_requests: int = 0
    kv_bytes: int = 0
    prefix_cache_bytes: int = 0
    generated_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How the MLX thread shares its time. The defaults suit interactive use.

    Attributes:
        max_batch_size: requests of one model that are decoded together; more wait their turn.
        prefill_batch_size: prompts of one model that are read side by side.
        prefill_step_tokens: prompt tokens read per turn; smaller keeps other streams smoother.
        load_slice_bytes: weights evaluated per turn while a model loads.
        raise_to_fp32_on_cpu: hold floating-point weights and scales as fp32 on the CPU device,
            where fp16 and bf16 arithmetic is up to 20 times slower.
        prefix_cache: keep the KV caches of finished requests, inside the KV budget, so that a
            prompt that begins alike needn't be read again.
        buffer_cache_limit_bytes: freed memory that MLX may keep for its next arrays. None leaves
            MLX's own limit where that is at most 1 GiB: enough for the activations of a large
            model's prefill step to be reused, and little beside the memory of a machine that
            holds such a model. On Metal, MLX's own limit would be nearly all of the memory.
    """

    max_batch_size: int = 32
    prefill_batch_size: int = 8
    prefill_step_tokens: int = 512
    load_slice_bytes: int = 32 * 1024**2
    raise_to_fp32_on_cpu: bool = True
    prefix_cache: bool = True
    buffer_cache_limit_bytes: int | None = None
