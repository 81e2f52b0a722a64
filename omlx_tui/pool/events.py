"""What happened in the pool: frozen facts, numbered, each with one line for the operator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from omlx_tui.engines.types import FinishReason
from omlx_tui.sizes import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvent:
    """Base of all events.

    Attributes:
        seq: 1, 2, 3 …, without gaps.
        wall_s: time since the epoch, for people and logs.
        mono_s: the pool's clock, for durations.
    """

    kind: ClassVar[str]
    is_problem: ClassVar[bool] = False

    seq: int
    wall_s: float
    mono_s: float

    def describe(self) -> str:
        """One line for the operator. May hold text from outside: never treat it as markup."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsDiscovered(PoolEvent):
    kind: ClassVar[str] = "discovery"

    found: int
    servable: int
    root: str

    def describe(self) -> str:
        unservable = self.found - self.servable
        extra = f", {unservable} of them not servable" if unservable else ""
        return f"found {self.found} model(s) in {self.root}{extra}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsChanged(PoolEvent):
    """The folders hold other models than at the last look."""

    kind: ClassVar[str] = "discovery"

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def describe(self) -> str:
        parts = {"new": self.added, "gone": self.removed, "changed": self.changed}
        return "; ".join(f"{what}: {', '.join(ids)}" for what, ids in parts.items() if ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderUnreadable(PoolEvent):
    """A folder of models can't be read now."""

    kind: ClassVar[str] = "discovery"
    is_problem: ClassVar[bool] = True

    path: str
    reason: str

    def describe(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureChanged(PoolEvent):
    """The process, or the machine, crossed a memory mark."""

    kind: ClassVar[str] = "pressure"

    level: str
    process_bytes: int
    limit_bytes: int
    available_bytes: int

    def describe(self) -> str:
        return (
            f"memory pressure is {self.level}: the process holds "
            f"{format_bytes(self.process_bytes)} of {format_bytes(self.limit_bytes)}, "
            f"{format_bytes(self.available_bytes)} are free on the machine"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGivenBack(PoolEvent):
    """Caches were dropped under pressure."""

    kind: ClassVar[str] = "pressure"

    what: str
    freed_bytes: int

    def describe(self) -> str:
        return f"dropped {self.what}: freed {format_bytes(self.freed_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChanged(PoolEvent):
    kind: ClassVar[str] = "budget"

    budget_bytes: int

    def describe(self) -> str:
        return f"the budget is {format_bytes(self.budget_bytes)} now"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineThreadDied(PoolEvent):
    """The thread that runs the models ended; what was in memory is gone."""

    kind: ClassVar[str] = "engine"
    is_problem: ClassVar[bool] = True

    reason: str
    lost: tuple[str, ...]

    def describe(self) -> str:
        lost = f"; lost {', '.join(self.lost)}, loaded again on demand" if self.lost else ""
        return f"the MLX thread died: {self.reason}{lost}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStarted(PoolEvent):
    kind: ClassVar[str] = "load"

    model_id: str
    footprint_bytes: int
    victims: tuple[str, ...]

    def describe(self) -> str:
        evicting = f", evicting {', '.join(self.victims)}" if self.victims else ""
        return f"loading {self.model_id} ({format_bytes(self.footprint_bytes)} reserved){evicting}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoaded(PoolEvent):
    kind: ClassVar[str] = "load"

    model_id: str
    weights_bytes: int
    took_s: float

    def describe(self) -> str:
        return (
            f"loaded {self.model_id}: {format_bytes(self.weights_bytes)} of weights "
            f"in {self.took_s:.2f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOff(PoolEvent):
    """A model turned out larger or smaller than its files said, by more than 5 %."""

    kind: ClassVar[str] = "load"

    model_id: str
    estimated_bytes: int
    measured_bytes: int

    def describe(self) -> str:
        return (
            f"{self.model_id} takes {format_bytes(self.measured_bytes)}, "
            f"not {format_bytes(self.estimated_bytes)} as its files said"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed(PoolEvent):
    kind: ClassVar[str] = "load"
    is_problem: ClassVar[bool] = True

    model_id: str
    reason: str

    def describe(self) -> str:
        return f"loading {self.model_id} failed: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCancelled(PoolEvent):
    kind: ClassVar[str] = "load"

    model_id: str
    reason: str

    def describe(self) -> str:
        return f"load of {self.model_id} cancelled: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEvicted(PoolEvent):
    """The pool took a model out to make room for another one."""

    kind: ClassVar[str] = "evict"

    model_id: str
    for_model_id: str
    idle_s: float
    freed_bytes: int
    took_s: float

    def describe(self) -> str:
        return (
            f"evicted {self.model_id} for {self.for_model_id}: least recently used "
            f"(idle {self.idle_s:.0f} s), freed {format_bytes(self.freed_bytes)} "
            f"in {self.took_s:.2f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnloaded(PoolEvent):
    """The operator, or the end of the pool, took a model out."""

    kind: ClassVar[str] = "unload"

    model_id: str
    reason: str
    freed_bytes: int
    took_s: float

    def describe(self) -> str:
        return (
            f"unloaded {self.model_id} ({self.reason}): freed {format_bytes(self.freed_bytes)} "
            f"in {self.took_s:.2f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadFailed(PoolEvent):
    """An engine did not go; its bytes stay counted."""

    kind: ClassVar[str] = "unload"
    is_problem: ClassVar[bool] = True

    model_id: str
    reason: str

    def describe(self) -> str:
        return f"unloading {self.model_id} failed, its bytes stay counted: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimSpared(PoolEvent):
    """A model chosen to leave was asked for, or pinned, before its unload began."""

    kind: ClassVar[str] = "evict"

    model_id: str
    for_model_id: str

    def describe(self) -> str:
        return f"spared {self.model_id}: it was wanted before it left for {self.for_model_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinChanged(PoolEvent):
    kind: ClassVar[str] = "pin"

    model_id: str
    is_pinned: bool

    def describe(self) -> str:
        return f"{'pinned' if self.is_pinned else 'unpinned'} {self.model_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted(PoolEvent):
    kind: ClassVar[str] = "request"

    request_id: str
    model_id: str
    client: str

    def describe(self) -> str:
        return f"request from {self.client} for {self.model_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFinished(PoolEvent):
    kind: ClassVar[str] = "request"

    request_id: str
    model_id: str
    client: str
    reason: FinishReason
    generated_tokens: int
    took_s: float

    def describe(self) -> str:
        return (
            f"{self.client} ← {self.model_id}: {self.generated_tokens} token(s), "
            f"{self.reason}, {self.took_s:.2f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRefused(PoolEvent):
    """A request ended before any token, with an error."""

    kind: ClassVar[str] = "refused"
    is_problem: ClassVar[bool] = True

    request_id: str
    model_id: str
    client: str
    reason: str

    def describe(self) -> str:
        return f"refused {self.client}: {self.reason}"


class EventLog:
    """A bounded ring of the latest events, and whoever wants to hear of new ones.

    Subscribers are called on the pool's loop and must return at once; what they raise is theirs.
    """

    def __init__(self, capacity: int = 2000) -> None:
        self._ring: deque[PoolEvent] = deque(maxlen=capacity)
        self._subscribers: list[Callable[[PoolEvent], None]] = []
        self._last_seq = 0

    @property
    def last_seq(self) -> int:
        return self._last_seq

    def next_seq(self) -> int:
        self._last_seq += 1
        return self._last_seq

    def append(self, event: PoolEvent) -> None:
        self._ring.append(event)
        for subscriber in tuple(self._subscribers):
            # Events are told in the middle of decisions: no listener may break one.
            with suppress(Exception):
                subscriber(event)

    def after(self, seq: int) -> tuple[PoolEvent, ...]:
        """The kept events with a number above ``seq``, oldest first."""
        return tuple(event for event in self._ring if event.seq > seq)

    def subscribe(self, subscriber: Callable[[PoolEvent], None]) -> Callable[[], None]:
        """Call ``subscriber`` for each new event; the returned function ends that."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe
