"""The life of one response, without I/O: the pool's events in, the protocol's frames out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from omlx_tui.engines.types import (
    AnswerDelta,
    Finished,
    FinishReason,
    LoadProgress,
    Message,
    PrefillProgress,
    ReasoningDelta,
    TextDelta,
    ToolCalled,
)
from omlx_tui.gateway import frames
from omlx_tui.gateway.commands import CreateResponse
from omlx_tui.gateway.items import ItemEvent, OutputItems
from omlx_tui.gateway.problems import Failure, JsonObject, Problem
from omlx_tui.pool.serving import Accepted, RequestEvent, Waiting

LOADING_INTERVAL_S = 1.0

Phase = Literal["asked", "created", "in_progress", "ended"]


class ResponseStream:
    """Turns the events of one request into its frames, in the protocol's order.

    ``asked → created → in_progress → ended``: nothing is sent before the pool accepts the request,
    and exactly one terminal frame is sent, whatever comes after it.

    Args:
        clock: monotonic seconds, for the pace of load progress.
        wall: seconds since the epoch, for the time stamps.
        new_id: makes an id that starts with the given prefix.
    """

    def __init__(
        self,
        create: CreateResponse,
        *,
        response_id: str,
        model: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
        new_id: Callable[[str], str],
    ) -> None:
        self.response_id = response_id
        self._create = create
        self._model = model
        self._clock = clock
        self._wall = wall
        self._created_at = int(wall())
        self._phase: Phase = "asked"
        self._sequence_number = 0
        self._loading_told_at: float | None = None
        self._items = OutputItems(new_id)
        self._is_answered = False
        self._prompt_tokens = 0
        self._generated_tokens = 0

    @property
    def stream_id(self) -> str | None:
        return self._create.stream_id

    @property
    def is_open(self) -> bool:
        """Whether the client was told of it and not of its end: what goes wrong now fails it."""
        return self._phase in ("created", "in_progress")

    @property
    def is_ended(self) -> bool:
        return self._phase == "ended"

    @property
    def is_answered(self) -> bool:
        """Whether it came to its own end, so that the conversation can go on from it."""
        return self._is_answered

    def message(self) -> Message | None:
        """What the model said, as a turn of the conversation; None if it wasn't asked to speak."""
        return None if self._create.is_warm_up else self._items.message()

    def feed(self, event: RequestEvent) -> list[JsonObject]:
        """The frames that ``event`` causes; none once the response has ended."""
        if self.is_ended:
            return []
        if isinstance(event, Accepted) == self.is_open:
            raise RuntimeError("a request is accepted once, before anything is reported on it")
        match event:
            case Accepted():
                return self._on_accepted(event)
            case Waiting():
                return [self._on_waiting(event)]
            case LoadProgress():
                return self._on_loading(event)
            case PrefillProgress():
                self._prompt_tokens = event.total_tokens
                return self._begin()
            case TextDelta() | ReasoningDelta() | ToolCalled():
                self._generated_tokens = event.generated_tokens
                return self._begin() + self._number(self._item_events(event))
            case Finished():
                return self._on_finished(event)

    def refuse(self, problem: Problem) -> list[JsonObject]:
        """End a request that was never created, with an error frame."""
        if self.is_ended:
            return []
        if self.is_open:
            raise RuntimeError("a created response fails, it is not refused")
        self._phase = "ended"
        return [frames.error_frame(problem, self.stream_id)]

    def fail(self, failure: Failure) -> list[JsonObject]:
        """End a created response with ``response.failed``."""
        if self.is_ended:
            return []
        return self._end("failed", failure=failure)

    def cancel(self) -> list[JsonObject]:
        """End a created response as cancelled, by the client, an operator or the host."""
        if self.is_ended:
            return []
        return self._end("cancelled")

    def _on_accepted(self, event: Accepted) -> list[JsonObject]:
        self._model = event.model_id
        self._phase = "created"
        if not event.needs_load:
            created = self._event("response.created", {"response": self._response("in_progress")})
            return [created, *self._begin()]
        return [
            self._event(name, {"response": self._response("queued")})
            for name in ("response.created", "response.queued")
        ]

    def _on_waiting(self, event: Waiting) -> JsonObject:
        return self._event(
            "omlx:model.waiting",
            {
                "response_id": self.response_id,
                "model": self._model,
                "position": event.position,
                "reason": event.reason,
            },
        )

    def _on_loading(self, event: LoadProgress) -> list[JsonObject]:
        now = self._clock()
        told_at = self._loading_told_at
        if told_at is not None and now - told_at < LOADING_INTERVAL_S:
            return []
        self._loading_told_at = now
        share = event.done_bytes / event.total_bytes if event.total_bytes else 0.0
        return [
            self._event(
                "omlx:model.loading",
                {
                    "response_id": self.response_id,
                    "model": self._model,
                    "progress": round(min(1.0, share), 4),
                    "done_bytes": event.done_bytes,
                    "total_bytes": event.total_bytes,
                },
            )
        ]

    def _begin(self) -> list[JsonObject]:
        if self._phase != "created":
            return []
        self._phase = "in_progress"
        return [self._event("response.in_progress", {"response": self._response("in_progress")})]

    def _item_events(self, delta: AnswerDelta) -> list[ItemEvent]:
        match delta:
            case TextDelta(text=text, logprobs=logprobs) if text:
                return self._items.add_words(text, logprobs)
            case ReasoningDelta(text=text) if text:
                return self._items.add_thoughts(text)
            case ToolCalled(call=call):
                return self._items.add_call(call)
            case _:
                return []

    def _on_finished(self, event: Finished) -> list[JsonObject]:
        self._prompt_tokens = event.prompt_tokens
        self._generated_tokens = event.generated_tokens
        match event.reason:
            case FinishReason.STOP:
                self._is_answered = True
                return (
                    self._begin()
                    + self._open_empty_answer(event.reason)
                    + self._end("completed", event)
                )
            case FinishReason.LENGTH:
                self._is_answered = True
                return (
                    self._begin()
                    + self._open_empty_answer(event.reason)
                    + self._end("incomplete", event)
                )
            case FinishReason.ABORTED:
                return self._end("cancelled", event)
            case FinishReason.ERROR:
                message = event.detail or "The engine failed."
                return self._end("failed", event, failure=Failure("server_error", message))

    def _open_empty_answer(self, reason: FinishReason) -> list[JsonObject]:
        """An answer may be empty, but it is an answer: its item is announced.

        One that was cut off in its thoughts has not begun yet.
        """
        is_cut = reason is FinishReason.LENGTH and not self._items.is_empty
        if self._create.is_warm_up or self._items.has_answer or is_cut:
            return []
        return self._number(self._items.add_words(""))

    def _end(
        self,
        status: Literal["completed", "incomplete", "cancelled", "failed"],
        finished: Finished | None = None,
        *,
        failure: Failure | None = None,
    ) -> list[JsonObject]:
        if not self.is_open:
            raise RuntimeError("there is no response to end")
        closing = self._items.close("completed" if status == "completed" else "incomplete")
        if finished is None and self._prompt_tokens:
            finished = Finished(
                reason=FinishReason.ABORTED,
                prompt_tokens=self._prompt_tokens,
                generated_tokens=self._generated_tokens,
            )
        response = self._response(
            status,
            completed_at=int(self._wall()) if status == "completed" else None,
            incomplete_reason="max_output_tokens" if status == "incomplete" else None,
            failure=failure,
            usage=frames.usage(finished) if finished else None,
        )
        # There is no event of its own for a cancelled response.
        name = "incomplete" if status == "cancelled" else status
        self._phase = "ended"
        return [*self._number(closing), self._event(f"response.{name}", {"response": response})]

    def _response(
        self,
        status: str,
        *,
        completed_at: int | None = None,
        incomplete_reason: str | None = None,
        failure: Failure | None = None,
        usage: JsonObject | None = None,
    ) -> JsonObject:
        return frames.response_object(
            self._create,
            response_id=self.response_id,
            model=self._model,
            created_at=self._created_at,
            status=status,
            completed_at=completed_at,
            output=self._items.output,
            incomplete_reason=incomplete_reason,
            failure=failure,
            usage=usage,
        )

    def _number(self, events: list[ItemEvent]) -> list[JsonObject]:
        return [self._event(kind, fields) for kind, fields in events]

    def _event(self, kind: str, fields: JsonObject) -> JsonObject:
        event: JsonObject = {"type": kind, "sequence_number": self._sequence_number}
        self._sequence_number += 1
        if self.stream_id is not None:
            event["stream_id"] = self.stream_id
        return event | fields
