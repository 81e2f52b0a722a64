"""The life of one response, without I/O: the pool's events in, the protocol's frames out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import JsonValue

from omlx_tui.engines.types import (
    Finished,
    FinishReason,
    LoadProgress,
    PrefillProgress,
    ReasoningDelta,
    TextDelta,
    ToolCalled,
)
from omlx_tui.gateway import frames
from omlx_tui.gateway.commands import CreateResponse
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
    """

    def __init__(
        self,
        create: CreateResponse,
        *,
        response_id: str,
        item_id: str,
        model: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.response_id = response_id
        self._create = create
        self._item_id = item_id
        self._model = model
        self._clock = clock
        self._wall = wall
        self._created_at = int(wall())
        self._phase: Phase = "asked"
        self._sequence_number = 0
        self._loading_told_at: float | None = None
        self._is_item_open = False
        self._text: list[str] = []
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
            case TextDelta():
                self._generated_tokens = event.generated_tokens
                return self._begin() + self._on_text(event.text)
            case ReasoningDelta() | ToolCalled():
                # Thoughts are counted, not shown; calls don't come as long as no tools are offered.
                self._generated_tokens = event.generated_tokens
                return self._begin()
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

    def _on_text(self, text: str) -> list[JsonObject]:
        if not text:
            return []
        opening = self._open_item()
        self._text.append(text)
        delta = self._part_event("response.output_text.delta", {"delta": text, "logprobs": []})
        return [*opening, delta]

    def _on_finished(self, event: Finished) -> list[JsonObject]:
        self._prompt_tokens = event.prompt_tokens
        self._generated_tokens = event.generated_tokens
        match event.reason:
            case FinishReason.STOP:
                # An answer may be empty, but it is an answer: its item is announced.
                opening = self._begin() + self._open_item()
                return opening + self._end("completed", finished=event)
            case FinishReason.LENGTH:
                opening = self._begin() + self._open_item()
                return opening + self._end("incomplete", finished=event)
            case FinishReason.ABORTED:
                return self._end("cancelled", finished=event)
            case FinishReason.ERROR:
                message = event.detail or "The engine failed."
                return self._end("failed", finished=event, failure=Failure("server_error", message))

    def _open_item(self) -> list[JsonObject]:
        if self._is_item_open:
            return []
        self._is_item_open = True
        item = frames.message_item(self._item_id, "in_progress", [])
        return [
            self._event("response.output_item.added", {"output_index": 0, "item": item}),
            self._part_event("response.content_part.added", {"part": frames.text_part("")}),
        ]

    def _end(
        self,
        status: Literal["completed", "incomplete", "cancelled", "failed"],
        *,
        finished: Finished | None = None,
        failure: Failure | None = None,
    ) -> list[JsonObject]:
        if not self.is_open:
            raise RuntimeError("there is no response to end")
        closing, output = self._close_item("completed" if status == "completed" else "incomplete")
        if finished is None and self._prompt_tokens:
            finished = Finished(
                reason=FinishReason.ABORTED,
                prompt_tokens=self._prompt_tokens,
                generated_tokens=self._generated_tokens,
            )
        response = self._response(
            status,
            completed_at=int(self._wall()) if status == "completed" else None,
            output=output,
            incomplete_reason="max_output_tokens" if status == "incomplete" else None,
            failure=failure,
            usage=frames.usage(finished) if finished else None,
        )
        # There is no event of its own for a cancelled response.
        name = "incomplete" if status == "cancelled" else status
        self._phase = "ended"
        return [*closing, self._event(f"response.{name}", {"response": response})]

    def _close_item(
        self, status: Literal["completed", "incomplete"]
    ) -> tuple[list[JsonObject], list[JsonValue]]:
        if not self._is_item_open:
            return [], []
        text = "".join(self._text)
        part = frames.text_part(text)
        item = frames.message_item(self._item_id, status, [part])
        closing = [
            self._part_event("response.output_text.done", {"text": text, "logprobs": []}),
            self._part_event("response.content_part.done", {"part": part}),
            self._event("response.output_item.done", {"output_index": 0, "item": item}),
        ]
        return closing, [item]

    def _response(
        self,
        status: str,
        *,
        completed_at: int | None = None,
        output: list[JsonValue] | None = None,
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
            output=output,
            incomplete_reason=incomplete_reason,
            failure=failure,
            usage=usage,
        )

    def _part_event(self, kind: str, fields: JsonObject) -> JsonObject:
        place: JsonObject = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return self._event(kind, place | fields)

    def _event(self, kind: str, fields: JsonObject) -> JsonObject:
        event: JsonObject = {"type": kind, "sequence_number": self._sequence_number}
        self._sequence_number += 1
        if self.stream_id is not None:
            event["stream_id"] = self.stream_id
        return event | fields
