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

    ``max_tokens`` is resolved: at least 1, and prompt and answer fit the context together.
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
    """How much of the prompt has been read into the KV cache."""

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
    """The one terminal event of a generation."""

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
    """What a backend needs to know to load a model."""

    model_id: str
    path: Path
    kind: Literal["llm"] = "llm"
    weights_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """MLX's own figures, as the MLX thread last saw them."""

    active_bytes: int = 0
    cache_bytes: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """An engine's live figures."""

    active_requests: int = 0
    queued_requests: int = 0
    kv_bytes: int = 0
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
    """

    max_batch_size: int = 32
    prefill_batch_size: int = 8
    prefill_step_tokens: int = 512
    load_slice_bytes: int = 32 * 1024**2
    raise_to_fp32_on_cpu: bool = True
