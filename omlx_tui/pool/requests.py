"""The live requests: who asked what of which model, and how far it has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from omlx_tui.engines.types import (
    Finished,
    FinishReason,
    LoadProgress,
    PrefillProgress,
    ReasoningDelta,
    TextDelta,
    ToolCalled,
)
from omlx_tui.pool.serving import Accepted, RequestEvent, Waiting
from omlx_tui.pool.snapshot import RequestSnapshot, RequestState

# Long enough to be steady to the eye, short enough to follow what happens.
_RATE_WINDOW_S = 3.0


_AT_THE_ENGINE = (RequestState.QUEUED, RequestState.PREFILL, RequestState.DECODE)


class RateMeter:
    """Tokens per second over the last few seconds."""

    def __init__(self, clock: Callable[[], float], window_s: float = _RATE_WINDOW_S) -> None:
        self._clock = clock
        self._window_s = window_s
        self._marks: deque[tuple[float, int]] = deque()
        self._window_tokens = 0

    def add(self, tokens: int) -> None:
        self._forget_old()
        self._marks.append((self._clock(), tokens))
        self._window_tokens += tokens

    def tokens_per_s(self) -> float:
        self._forget_old()
        return self._window_tokens / self._window_s

    def _forget_old(self) -> None:
        oldest_s = self._clock() - self._window_s
        while self._marks and self._marks[0][0] < oldest_s:
            self._window_tokens -= self._marks.popleft()[1]


@dataclass(slots=True, kw_only=True, eq=False)
class LiveRequest:
    """One request's record, changed as its events come by."""

    request_id: str
    model_id: str
    client: str
    started_s: float
    meter: RateMeter
    state: RequestState = RequestState.WAITING
    queue_position: int | None = None
    waits_for: str = ""
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    reason: FinishReason = FinishReason.ABORTED

    def note(self, event: RequestEvent) -> int:
        """Take in an event; returns how many tokens it brought."""
        match event:
            case Accepted(needs_load=needs_load):
                self.state = RequestState.LOADING if needs_load else RequestState.QUEUED
            case Waiting(position, reason):
                self.state = RequestState.WAITING
                self.queue_position, self.waits_for = position, reason
            case LoadProgress():
                self.state = RequestState.LOADING
                self.queue_position, self.waits_for = None, ""
            case PrefillProgress(processed_tokens, total_tokens):
                self.state = RequestState.PREFILL
                self.prefilled_tokens = processed_tokens
                self.prompt_tokens = total_tokens
            case (
                TextDelta(generated_tokens=generated_tokens)
                | ReasoningDelta(generated_tokens=generated_tokens)
                | ToolCalled(generated_tokens=generated_tokens)
            ):
                self.state = RequestState.DECODE
                new_tokens = generated_tokens - self.generated_tokens
                self.generated_tokens = generated_tokens
                self.meter.add(new_tokens)
                return new_tokens
            case Finished():
                self.reason = event.reason
                self.generated_tokens = event.generated_tokens
                self.prompt_tokens = event.prompt_tokens
        return 0

    def freeze(self) -> RequestSnapshot:
        return RequestSnapshot(
            request_id=self.request_id,
            client=self.client,
            model_id=self.model_id,
            state=self.state,
            started_s=self.started_s,
            queue_position=self.queue_position,
            waits_for=self.waits_for,
            prompt_tokens=self.prompt_tokens,
            prefilled_tokens=self.prefilled_tokens,
            generated_tokens=self.generated_tokens,
            tokens_per_s=self.meter.tokens_per_s(),
        )


@dataclass(slots=True)
class RequestBoard:
    """All live requests, and the token rates of the models they run on."""

    clock: Callable[[], float]
    _live: dict[str, LiveRequest] = field(default_factory=dict[str, LiveRequest])
    _model_meters: dict[str, RateMeter] = field(default_factory=dict[str, RateMeter])

    def open(self, request_id: str, model_id: str, client: str) -> LiveRequest:
        """Start a record.

        Raises:
            ValueError: a request of that id is live.
        """
        if request_id in self._live:
            raise ValueError(f"request id {request_id!r} is already running")
        record = LiveRequest(
            request_id=request_id,
            model_id=model_id,
            client=client,
            started_s=self.clock(),
            meter=RateMeter(self.clock),
        )
        self._live[request_id] = record
        return record

    def note(self, record: LiveRequest, event: RequestEvent) -> None:
        if new_tokens := record.note(event):
            self._meter(record.model_id).add(new_tokens)

    def close(self, record: LiveRequest) -> None:
        self._live.pop(record.request_id, None)

    def is_live(self, request_id: str) -> bool:
        return request_id in self._live

    def newest_of(self, model_id: str) -> str | None:
        """The id of a model's newest request that its engine works on."""
        ids = [
            record.request_id
            for record in self._live.values()
            if record.model_id == model_id and record.state in _AT_THE_ENGINE
        ]
        return ids[-1] if ids else None

    def tokens_per_s(self, model_id: str) -> float:
        return self._meter(model_id).tokens_per_s()

    def freeze(self) -> tuple[RequestSnapshot, ...]:
        """The live requests, oldest first."""
        return tuple(record.freeze() for record in self._live.values())

    def _meter(self, model_id: str) -> RateMeter:
        if model_id not in self._model_meters:
            self._model_meters[model_id] = RateMeter(self.clock)
        return self._model_meters[model_id]
