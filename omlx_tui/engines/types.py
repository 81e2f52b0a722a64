"""What crosses the border between an engine and whoever uses it: immutable values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]
Thinking = Literal["off", "minimal", "low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may ask its client to call.

    ``parameters`` is the JSON schema of its arguments.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to have a function called, with its arguments as a JSON object's text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation, as a chat template takes it.

    Attributes:
        reasoning: an assistant's thoughts before its words.
        tool_calls: an assistant's calls after its words.
        call_id: the call that a ``tool`` message answers, and ``name`` that call's function.
    """

    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""


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

    Attributes:
        max_tokens: None means until the model stops or its context is full.
        stop: texts that end the answer; they are looked for in what it says, not in its thoughts.
        tools: functions that the model is told of.
        parallel_tool_calls: False ends the answer after its first call.
        thinking: how much a model that can think should; None is its own way. Models and templates
            that know nothing of it take no notice.
        top_logprobs: report each token of the answer's text with its log probability and those of
            so many likeliest others; None reports nothing.
        is_warm_up: load the model and see that the prompt fits, but answer nothing.
    """

    request_id: str
    messages: tuple[Message, ...]
    max_tokens: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    parallel_tool_calls: bool = True
    thinking: Thinking | None = None
    top_logprobs: int | None = None
    is_warm_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A request whose prompt has been rendered, tokenised and found to fit the context.

    ``max_tokens`` is resolved: at least 1, and prompt and answer fit the context and the KV
    budget together. ``starts_in`` is the part of an answer that the prompt has opened already.
    """

    request: GenerationRequest
    prompt: tuple[int, ...]
    max_tokens: int
    starts_in: str = "normal"


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
class Logprob:
    """A token as text and as UTF-8, and the natural logarithm of its probability.

    ``top`` are the likeliest tokens at its place, the likeliest first. A token may be part of a
    character only: its text is U+FFFD then, and ``utf8`` is what it really is.
    """

    token: str
    utf8: bytes
    logprob: float
    top: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that became printable, and how many tokens have been generated so far.

    ``text`` may be empty while a character, a possible stop string or a tool call is held back.
    """

    text: str
    generated_tokens: int
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The same of a model's thoughts."""

    text: str
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model has written a whole call; its ``call_id`` is empty if the model gave it none."""

    call: ToolCall
    generated_tokens: int


AnswerDelta = TextDelta | ReasoningDelta | ToolCalled


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The one terminal event of a generation.

    ``cached_tokens`` is how many of the prompt's tokens came from the prefix cache,
    ``reasoning_tokens`` how many of the generated ones were thoughts.
    """

    reason: FinishReason
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    detail: str = ""


GenerationEvent = PrefillProgress | AnswerDelta | Finished


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
