"""What goes to the MLX thread, in one ordered queue, and what comes back from it.

Commands hold data only, never callables or arrays: a recorded queue can be replayed on another
rank of ``mlx.distributed`` and lead to the same steps. Reports are the thread's only output.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omlx_tui.engines.types import LoadProgress, MemoryReading, SamplingParams


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """Build a model lazily and evaluate its weights, a slice per turn."""

    engine_key: int
    model_id: str
    path: Path


@dataclass(frozen=True, slots=True)
class CancelLoad:
    """Drop a load between two slices (or the engine, if the load has just ended)."""

    engine_key: int


@dataclass(frozen=True, slots=True)
class Unload:
    engine_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Queue a tokenised prompt.

    ``sampling`` has no open choice left: its seed is always set, so that a replay samples alike.
    """

    engine_key: int
    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    stop_tokens: tuple[int, ...]
    sampling: SamplingParams
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    engine_key: int
    request_id: str


@dataclass(frozen=True, slots=True)
class LimitKV:
    """Keep an engine's prefix cache and its live KV caches within a budget; None is no limit."""

    engine_key: int
    budget_bytes: int | None


@dataclass(frozen=True, slots=True)
class DropCaches:
    """Give an engine's prefix cache back, or every engine's; ``ticket`` names the answer."""

    ticket: int
    engine_key: int | None


@dataclass(frozen=True, slots=True)
class DropBuffers:
    """Give MLX's cache of freed buffers back; ``ticket`` names the answer."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The last command: drop everything and end the thread."""


Command = (
    BeginLoad | CancelLoad | Unload | Submit | Abort | LimitKV | DropCaches | DropBuffers | Stop
)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's log probability, and the likeliest tokens at its place with theirs."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One token of one request; ``ended`` is None while it goes on."""

    request_id: str
    token: int
    ended: str | None
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class PrefillOutput:
    """How much of a prompt has been read; ``cached_tokens`` of it did not need to be."""

    request_id: str
    processed_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class FailedOutput:
    """A request that a step brought down."""

    request_id: str
    detail: str


StepOutput = TokenOutput | PrefillOutput | FailedOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base of what the thread says; each carries MLX's memory figures of that moment."""

    memory: MemoryReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Report):
    """MLX is imported and the thread takes commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped(Report):
    """All outputs of one pass of one engine's batch; none, if only its caches have changed."""

    engine_key: int
    outputs: tuple[StepOutput, ...]
    kv_bytes: int
    prefix_cache_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAdvanced(Report):
    engine_key: int
    progress: LoadProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Report):
    """``is_raised``: the weights are held as fp32, whatever the files say."""

    engine_key: int
    weights_bytes: int
    is_raised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEnded(Report):
    """A load that did not become an engine: failed (with the reason) or cancelled."""

    engine_key: int
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unloaded(Report):
    engine_key: int
    freed_bytes: int
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped(Report):
    """The answer to ``DropCaches`` and ``DropBuffers``."""

    ticket: int
    freed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadEnded(Report):
    """The thread's last word; ``failure`` is None if it was told to stop."""

    failure: str | None
