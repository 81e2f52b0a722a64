"""The pool at one instant, frozen: what the console, the gateway and the shell draw from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from omlx_tui.engines.types import LoadProgress, MemoryReading


class ModelState(StrEnum):
    """Where an entry is in its life; one place in the pool changes it.

    ``UNLOADED → LOADING → READY ⇄ DRAINING → UNLOADING → UNLOADED``, and ``FAILED``.
    """

    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    UNLOADING = "unloading"
    FAILED = "failed"


class RequestState(StrEnum):
    """Where a request is."""

    WAITING = "waiting"
    LOADING = "loading"
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """One model.

    Attributes:
        lru_rank: 0 for the coldest resident model, None for one that isn't resident.
        is_next_victim: whether it is the one to leave first if room is needed now.
        last_access_s: the pool's clock at the last use, None if never used.
        weights_measured: whether ``weights_bytes`` was measured or is the estimate.
        held_bytes: what the model counts against the budget now (0 when not resident).
        problem: why it can't be served or why its load failed; empty if all is well.
        ttl_left_s: until it is unloaded for lack of requests; None if that won't happen now.
    """

    model_id: str
    path: str
    model_type: str
    state: ModelState
    is_servable: bool
    is_pinned: bool
    is_next_victim: bool
    lru_rank: int | None
    last_access_s: float | None
    weights_bytes: int
    weights_measured: bool
    headroom_bytes: int
    held_bytes: int
    kv_bytes: int
    active_requests: int
    queued_requests: int
    leases: int
    tokens_per_s: float
    load: LoadProgress | None
    problem: str
    ttl_left_s: float | None = None

    @property
    def is_resident(self) -> bool:
        return self.lru_rank is not None

    @property
    def is_busy(self) -> bool:
        """Whether it may not be evicted because somebody uses it."""
        return self.leases > 0 or self.active_requests > 0 or self.queued_requests > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSnapshot:
    """One live request.

    Attributes:
        queue_position: its place in the line for room, 1 is next; None if it does not wait there.
        waits_for: why there is no room yet, in words; empty if it does not wait.
    """

    request_id: str
    client: str
    model_id: str
    state: RequestState
    started_s: float
    prompt_tokens: int
    prefilled_tokens: int
    generated_tokens: int
    tokens_per_s: float
    queue_position: int | None = None
    waits_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """Everything at one instant.

    ``models`` are in LRU order: resident ones from the most to the least recently used, then the
    loading ones, then the others by id. ``taken_s`` is on the pool's clock, like the models'
    ``last_access_s`` and the requests' ``started_s``; ``wall_s`` is since the epoch. ``problem``
    says why no model could be run now, and is empty while all is well.
    """

    seq: int
    taken_s: float
    wall_s: float
    budget_bytes: int
    held_bytes: int
    peak_held_bytes: int
    memory: MemoryReading
    models: tuple[ModelSnapshot, ...]
    requests: tuple[RequestSnapshot, ...]
    tokens_per_s: float
    evictions: int
    last_event_seq: int
    problem: str = ""

    @property
    def resident_count(self) -> int:
        return sum(model.is_resident for model in self.models)

    @property
    def free_bytes(self) -> int:
        return max(0, self.budget_bytes - self.held_bytes)

    def model(self, model_id: str) -> ModelSnapshot | None:
        return next((model for model in self.models if model.model_id == model_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What loading a model would do, decided without doing it.

    Attributes:
        fits: whether the load could start now.
        victims: who would be evicted, in that order.
        problem: why it does not fit; empty if it does.
    """

    model_id: str
    fits: bool
    is_resident: bool
    needed_bytes: int
    free_bytes: int
    freed_bytes: int
    victims: tuple[str, ...]
    problem: str
