"""One response's frames, from events of the pool, without a connection."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from omlx_tui.engines.types import (
    Finished,
    FinishReason,
    LoadProgress,
    Message,
    PrefillProgress,
    SamplingParams,
    TextDelta,
)
from omlx_tui.gateway.commands import CreateResponse
from omlx_tui.gateway.problems import Failure, overloaded
from omlx_tui.gateway.responses import ResponseStream
from omlx_tui.pool.serving import Accepted, RequestEvent, Waiting
from tests.gateway.fakes import Frame, kinds_of, text_of, validated

OPENING = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
]
CLOSING = [
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stream(clock: Clock | None = None, **fields: Any) -> ResponseStream:
    numbers = itertools.count(1)
    create = CreateResponse(
        stream_id=None,
        model="m",
        messages=(Message("user", "Hi"),),
        instructions="Be brief.",
        max_output_tokens=9,
        sampling=SamplingParams(temperature=0.5),
        stop=(),
        metadata={"k": "v"},
    )
    return ResponseStream(
        dataclasses.replace(create, **fields),
        response_id="resp_1",
        model="m",
        clock=clock or Clock(),
        wall=lambda: 1700000000.9,
        new_id=lambda prefix: f"{prefix}_{next(numbers)}",
    )


def feed(response: ResponseStream, *events: RequestEvent) -> list[Frame]:
    return [validated(frame) for event in events for frame in response.feed(event)]


def finished(reason: FinishReason, detail: str = "") -> Finished:
    return Finished(
        reason=reason, prompt_tokens=5, generated_tokens=2, cached_tokens=3, detail=detail
    )


def test_an_answer_in_order() -> None:
    """A resident model's answer: every event of the protocol, once, numbered without gaps."""
    frames = feed(
        stream(),
        Accepted("org/m", needs_load=False),
        PrefillProgress(5, 5),
        TextDelta("Hel", 1),
        TextDelta("", 2),
        TextDelta("lo", 3),
        finished(FinishReason.STOP),
    )
    deltas = ["response.output_text.delta"] * 2
    assert kinds_of(frames) == [*OPENING, *deltas, *CLOSING, "response.completed"]
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert text_of(frames) == "Hello"
    assert all("stream_id" not in frame for frame in frames)


def test_the_completed_response_is_whole() -> None:
    """The last event alone tells a client everything: text, usage, parameters, metadata."""
    *_, last = feed(
        stream(),
        Accepted("org/m", needs_load=False),
        TextDelta("Hello", 2),
        finished(FinishReason.STOP),
    )
    response = last["response"]
    assert response["id"] == "resp_1"
    assert response["model"] == "org/m"
    assert response["status"] == "completed"
    assert response["created_at"] == response["completed_at"] == 1700000000
    assert response["output"][0]["content"][0]["text"] == "Hello"
    assert response["output"][0]["status"] == "completed"
    assert response["instructions"] == "Be brief."
    assert response["temperature"] == 0.5
    assert response["max_output_tokens"] == 9
    assert response["metadata"] == {"k": "v"}
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 7,
    }


def test_every_response_has_the_keys_that_open_responses_requires() -> None:
    """The schema of 2026-04-24 requires these, null or not."""
    created = feed(stream(), Accepted("m", needs_load=False))[0]
    assert created["response"].keys() >= {
        *("id", "object", "created_at", "completed_at", "status", "incomplete_details"),
        *("model", "previous_response_id", "instructions", "output", "error", "tools"),
        *("tool_choice", "truncation", "parallel_tool_calls", "text", "top_p"),
        *("presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning"),
        *("usage", "max_output_tokens", "max_tool_calls", "store", "background"),
        *("service_tier", "metadata", "safety_identifier", "prompt_cache_key"),
    }


def test_a_load_is_told_at_once_and_then_every_second() -> None:
    """A client sees the first progress immediately and at most one a second after it."""
    clock = Clock()
    response = stream(clock)
    frames = feed(response, Accepted("m", needs_load=True), LoadProgress(0, 100))
    assert kinds_of(frames) == ["response.created", "response.queued", "omlx:model.loading"]
    assert frames[0]["response"]["status"] == "queued"
    clock.now += 0.9
    assert feed(response, LoadProgress(30, 100)) == []
    clock.now += 0.1
    (told,) = feed(response, LoadProgress(40, 100))
    assert told["progress"] == 0.4
    assert (told["done_bytes"], told["total_bytes"]) == (40, 100)
    assert (told["response_id"], told["model"]) == ("resp_1", "m")
    assert kinds_of(feed(response, PrefillProgress(1, 5), PrefillProgress(5, 5))) == [
        "response.in_progress"
    ]


def test_a_wait_for_room_is_told_with_its_place_and_reason() -> None:
    """Between ``queued`` and the load; clients that don't know it ignore it."""
    frames = feed(stream(), Accepted("m", needs_load=True), Waiting(2, "Held by x."))
    kinds = [frame["type"] for frame in frames]
    assert kinds == ["response.created", "response.queued", "omlx:model.waiting"]
    assert (frames[-1]["position"], frames[-1]["reason"]) == (2, "Held by x.")


def test_a_load_of_no_bytes_has_no_progress() -> None:
    """Nothing divides by zero."""
    frames = feed(stream(), Accepted("m", needs_load=True), LoadProgress(0, 0))
    assert frames[-1]["progress"] == 0.0


def test_a_named_lane_is_on_every_event() -> None:
    """A client tells its lanes apart by the name on each event."""
    frames = feed(
        stream(stream_id="lane"),
        Accepted("m", needs_load=True),
        LoadProgress(1, 2),
        TextDelta("x", 1),
        finished(FinishReason.STOP),
    )
    assert {frame["stream_id"] for frame in frames} == {"lane"}


def test_an_empty_answer_is_an_answer() -> None:
    """A model that stops at once has answered with an empty text."""
    frames = feed(stream(), Accepted("m", needs_load=False), finished(FinishReason.STOP))
    assert kinds_of(frames) == [*OPENING, *CLOSING, "response.completed"]
    assert frames[-1]["response"]["output"][0]["content"][0]["text"] == ""


def test_the_token_limit_leaves_an_incomplete_response() -> None:
    """A client sees that the answer was cut, and by what."""
    *_, item_done, last = feed(
        stream(), Accepted("m", needs_load=False), TextDelta("x", 1), finished(FinishReason.LENGTH)
    )
    assert last["type"] == "response.incomplete"
    assert last["response"]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["completed_at"] is None
    assert item_done["item"]["status"] == "incomplete"


def test_an_aborted_generation_is_a_cancelled_response() -> None:
    """What an operator cancels ends like what the client cancels."""
    *_, last = feed(stream(), Accepted("m", needs_load=False), finished(FinishReason.ABORTED))
    assert last["type"] == "response.incomplete"
    assert last["response"]["status"] == "cancelled"
    assert last["response"]["incomplete_details"] is None
    assert last["response"]["output"] == []


def test_an_engine_error_is_a_failed_response() -> None:
    """The engine's own words reach the client, and what was written stays."""
    frames = feed(
        stream(),
        Accepted("m", needs_load=False),
        TextDelta("Once", 1),
        finished(FinishReason.ERROR, detail="Out of luck."),
    )
    assert kinds_of(frames)[-4:] == [*CLOSING, "response.failed"]
    response = frames[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "Out of luck."}
    assert response["output"][0]["content"][0]["text"] == "Once"


def test_cancel_counts_what_is_known() -> None:
    """A response that is cut short tells the tokens seen so far."""
    response = stream()
    feed(response, Accepted("m", needs_load=False), PrefillProgress(2, 5), TextDelta("x", 4))
    *_, last = [validated(frame) for frame in response.cancel()]
    assert last["response"]["usage"]["input_tokens"] == 5
    assert last["response"]["usage"]["output_tokens"] == 4


def test_a_response_that_fails_during_its_load_has_no_output() -> None:
    """No item is announced that never began."""
    response = stream()
    feed(response, Accepted("m", needs_load=True))
    (last,) = [validated(frame) for frame in response.fail(Failure("server_error", "No."))]
    assert last["response"]["output"] == []
    assert last["response"]["usage"] is None


def test_nothing_follows_the_end() -> None:
    """One terminal event, whatever the pool says later."""
    response = stream()
    feed(response, Accepted("m", needs_load=False), TextDelta("x", 1))
    assert response.cancel()
    assert response.cancel() == []
    assert response.fail(Failure("server_error", "late")) == []
    assert response.refuse(overloaded("late")) == []
    assert feed(response, TextDelta("y", 2), finished(FinishReason.STOP)) == []


@pytest.mark.parametrize("event", [TextDelta("x", 1), PrefillProgress(1, 2), LoadProgress(1, 2)])
def test_nothing_is_sent_before_the_pool_accepts(event: RequestEvent) -> None:
    """A pool that reports on a request it did not accept breaks its contract."""
    with pytest.raises(RuntimeError):
        stream().feed(event)
