"""A connection's protocol without its socket: frames in, effects out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from omlx_tui.engines.errors import ContextLengthError, EngineClosedError, PromptRefusedError
from omlx_tui.engines.types import Finished, FinishReason, TextDelta
from omlx_tui.gateway.lanes import LaneLimits
from omlx_tui.gateway.protocol import Effect, ResponsesProtocol, Send, Start, Stop
from omlx_tui.pool.errors import (
    InsufficientMemoryError,
    LoadCancelledError,
    ModelLoadError,
    ModelNotFoundError,
    ModelNotServableError,
    PoolClosedError,
    QueueFullError,
)
from omlx_tui.pool.serving import Accepted
from tests.gateway.fakes import Frame, kinds_of, validated

INVALID = "invalid_request_error"
SERVER = "server_error"
FINISHED = Finished(reason=FinishReason.STOP, prompt_tokens=1, generated_tokens=1)


def protocol(default: str | None = "fake", limits: LaneLimits | None = None) -> ResponsesProtocol:
    numbers = count(1)
    return ResponsesProtocol(
        default_model=lambda: default,
        limits=limits,
        clock=lambda: 0.0,
        wall=lambda: 1700000000.0,
        new_id=lambda prefix: f"{prefix}_{next(numbers)}",
    )


def create(conversation: ResponsesProtocol, **fields: Any) -> list[Effect]:
    body = {"type": "response.create", "model": "fake", "input": "Hi"} | fields
    return conversation.receive(json.dumps(body))


def cancel(conversation: ResponsesProtocol, **fields: Any) -> list[Effect]:
    return conversation.receive(json.dumps({"type": "response.cancel"} | fields))


def frames(effects: Sequence[Effect]) -> list[Frame]:
    return [validated(json.loads(e.text)) for e in effects if isinstance(e, Send)]


def started(effects: Sequence[Effect]) -> Start:
    (start,) = [effect for effect in effects if isinstance(effect, Start)]
    return start


def errors(effects: Sequence[Effect]) -> list[tuple[int, str, str | None]]:
    return [
        (frame["status"], frame["error"]["code"], frame["error"]["param"])
        for frame in frames(effects)
        if frame["type"] == "error"
    ]


def memory_error(*, budget_bytes: int) -> InsufficientMemoryError:
    return InsufficientMemoryError(
        "fake",
        needed_bytes=60,
        budget_bytes=budget_bytes,
        free_bytes=10,
        freeable_bytes=20,
        blocking=("pinned",),
    )


def test_a_prompt_asks_the_pool_and_says_nothing_yet() -> None:
    """Nothing is sent before the pool has accepted; the response's id is the request's."""
    (start,) = create(protocol(), instructions="Short.", max_output_tokens=3, stop="x", seed=1)
    assert isinstance(start, Start)
    assert start.model_id == "fake"
    assert start.request.request_id == start.response_id
    assert [message.content for message in start.request.messages] == ["Short.", "Hi"]
    assert start.request.max_tokens == 3
    assert start.request.stop == ("x",)
    assert start.request.sampling.seed == 1


def test_a_prompt_without_a_model_gets_the_hosts_choice() -> None:
    """The default is asked for when the turn comes."""
    assert started(create(protocol(default="chosen"), model=None)).model_id == "chosen"


def test_a_prompt_without_a_model_on_an_empty_host_is_refused() -> None:
    """Without any model the client is told to name one, and the lane goes on."""
    conversation = protocol(default=None)
    refusal = create(conversation, model=None)
    assert errors(refusal) == [(400, "missing_required_parameter", "model")]
    assert started(create(conversation))


def test_the_default_lane_is_first_come_first_served() -> None:
    """The second prompt is not even asked for while the first one runs."""
    conversation = protocol()
    first = started(create(conversation))
    assert create(conversation) == []
    conversation.on_event(first.response_id, Accepted("fake", needs_load=False))
    assert kinds_of(frames(conversation.on_event(first.response_id, FINISHED)))[-1] == (
        "response.completed"
    )
    second = started(conversation.on_ended(first.response_id))
    assert second.response_id != first.response_id
    assert conversation.in_flight == 1


def test_named_lanes_run_at_once() -> None:
    """Two lanes, two requests at the pool."""
    conversation = protocol()
    assert started(create(conversation, stream_id="a"))
    assert started(create(conversation, stream_id="b"))
    assert create(conversation, stream_id="a") == []


def test_a_refused_prompt_waits_for_its_turn() -> None:
    """Its error can't be taken for an error of the answer that is being streamed."""
    conversation = protocol()
    first = started(create(conversation))
    assert create(conversation, temperature=9) == []
    assert create(conversation) == []
    conversation.on_event(first.response_id, Accepted("fake", needs_load=False))
    effects = conversation.on_ended(first.response_id)
    assert errors(effects) == [(400, "invalid_value", "temperature")]
    assert started(effects)


def test_too_much_in_flight_is_refused_at_once() -> None:
    """The limit's error carries when to try again, and names its lane."""
    conversation = protocol(limits=LaneLimits(in_flight=1))
    create(conversation)
    (error,) = frames(create(conversation, stream_id="a"))
    assert (error["status"], error["stream_id"]) == (429, "a")
    assert error["error"]["type"] == "rate_limit_error"
    assert error["error"]["code"] == "rate_limit_exceeded"
    assert error["error"]["headers"] == {"retry-after": "1"}


def test_bad_frames_are_answered_and_change_nothing() -> None:
    """Noise between two prompts is an error frame each, no more."""
    conversation = protocol()
    assert errors(conversation.receive("{")) == [(400, "invalid_json", None)]
    assert errors(conversation.receive('{"type":"x"}')) == [(400, "unknown_event_type", "type")]
    assert conversation.in_flight == 0
    assert started(create(conversation))


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "param"),
    [
        (ModelNotFoundError("fak", ["fake"]), 404, INVALID, "model_not_found", "model"),
        (ModelNotServableError("fake", "no"), 400, INVALID, "model_not_servable", "model"),
        (memory_error(budget_bytes=50), 400, INVALID, "insufficient_memory", "model"),
        (memory_error(budget_bytes=90), 503, SERVER, "server_is_overloaded", None),
        (ContextLengthError("fake", 9, 8), 400, INVALID, "context_length_exceeded", "input"),
        (ModelLoadError("fake", "no"), 503, SERVER, "server_is_overloaded", None),
        (PoolClosedError(), 503, SERVER, "server_is_overloaded", None),
        (EngineClosedError("gone"), 503, SERVER, "server_is_overloaded", None),
        (QueueFullError("m", 9), 429, "rate_limit_error", "rate_limit_exceeded", None),
        (PromptRefusedError("m", "no roles"), 400, INVALID, "invalid_prompt", "input"),
        (ValueError("a bug"), 500, SERVER, "server_error", None),
    ],
)
def test_what_the_pool_refuses_is_an_error_frame(
    error: Exception, status: int, kind: str, code: str, param: str | None
) -> None:
    """Before a response exists, each cause has the status and code that clients act upon."""
    conversation = protocol()
    start = started(create(conversation, stream_id="lane"))
    (frame,) = frames(conversation.on_ended(start.response_id, error))
    assert frame["type"] == "error"
    assert frame["status"] == status
    assert frame["stream_id"] == "lane"
    assert (frame["error"]["type"], frame["error"]["code"]) == (kind, code)
    assert frame["error"]["param"] == param
    assert conversation.in_flight == 0


def test_an_unknown_model_is_told_with_its_near_names() -> None:
    """A typing mistake is answered with what was meant."""
    conversation = protocol()
    start = started(create(conversation, model="fak"))
    error = ModelNotFoundError("fak", ["fake"])
    assert "fake" in frames(conversation.on_ended(start.response_id, error))[0]["error"]["message"]


def test_figures_come_with_memory_errors() -> None:
    """Clients that know us can show what is in the way."""
    conversation = protocol()
    start = started(create(conversation))
    (frame,) = frames(conversation.on_ended(start.response_id, memory_error(budget_bytes=90)))
    assert frame["error"]["omlx"] == {
        "needed_bytes": 60,
        "freeable_bytes": 20,
        "blocking": ["pinned"],
    }
    start = started(create(conversation))
    (frame,) = frames(conversation.on_ended(start.response_id, memory_error(budget_bytes=50)))
    assert frame["error"]["omlx"] == {"needed_bytes": 60, "budget_bytes": 50}


def test_a_bug_is_not_told_to_strangers() -> None:
    """The text of an unexpected exception stays in the log."""
    conversation = protocol()
    start = started(create(conversation))
    (frame,) = frames(conversation.on_ended(start.response_id, ValueError("/secret/path")))
    assert "secret" not in frame["error"]["message"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelLoadError("fake", "no"), "server_is_overloaded"),
        (LoadCancelledError("fake"), "server_is_overloaded"),
        (memory_error(budget_bytes=90), "server_is_overloaded"),
        (ContextLengthError("fake", 9, 8), "context_length_exceeded"),
        (PromptRefusedError("m", "no roles"), "invalid_prompt"),
        (EngineClosedError("gone"), "server_error"),
        (PoolClosedError(), "server_error"),
        (ValueError("a bug"), "server_error"),
        (None, "server_error"),
    ],
)
def test_what_fails_after_created_is_a_failed_response(error: Exception | None, code: str) -> None:
    """Once a response exists it ends as failed, even if the pool just stops talking."""
    conversation = protocol()
    start = started(create(conversation))
    conversation.on_event(start.response_id, Accepted("fake", needs_load=True))
    (frame,) = frames(conversation.on_ended(start.response_id, error))
    assert frame["type"] == "response.failed"
    assert frame["response"]["error"]["code"] == code
    assert conversation.in_flight == 0


def test_a_pool_that_says_nothing_at_all_is_an_error_frame() -> None:
    """A request ends with one terminal event, whatever the pool forgets."""
    conversation = protocol()
    start = started(create(conversation))
    assert errors(conversation.on_ended(start.response_id)) == [(500, "server_error", None)]


def test_cancel_ends_the_response_at_once_and_frees_the_lane_when_the_work_ends() -> None:
    """The client gets its terminal event now; the next prompt waits for the pool to let go."""
    conversation = protocol()
    start = started(create(conversation))
    conversation.on_event(start.response_id, Accepted("fake", needs_load=False))
    conversation.on_event(start.response_id, TextDelta("Hal", 1))
    create(conversation)
    effects = cancel(conversation, response_id=start.response_id)
    last = frames(effects)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["status"] == "cancelled"
    assert last["response"]["incomplete_details"] is None
    assert last["response"]["output"][0]["content"][0]["text"] == "Hal"
    assert effects[-1] == Stop(start.response_id)
    assert conversation.on_event(start.response_id, TextDelta("f", 2)) == []
    effects = conversation.on_ended(start.response_id)
    assert frames(effects) == []
    assert started(effects)


def test_cancelling_twice_is_harmless() -> None:
    """Neither a second cancel nor one that crosses the end on the wire is an error."""
    conversation = protocol()
    start = started(create(conversation))
    conversation.on_event(start.response_id, Accepted("fake", needs_load=False))
    assert cancel(conversation, response_id=start.response_id)
    assert cancel(conversation, response_id=start.response_id) == []
    conversation.on_ended(start.response_id)
    assert cancel(conversation, response_id=start.response_id) == []


def test_cancel_without_an_id_means_the_lane() -> None:
    """Some clients send no id: what runs in their lane is meant."""
    conversation = protocol()
    start = started(create(conversation, stream_id="a"))
    conversation.on_event(start.response_id, Accepted("fake", needs_load=False))
    assert errors(cancel(conversation)) == [(400, "response_not_found", "response_id")]
    assert cancel(conversation, stream_id="a")[-1] == Stop(start.response_id)


def test_cancelling_what_is_not_there_is_an_error() -> None:
    """An unknown id is told, and a response that was not created yet can't be cancelled."""
    conversation = protocol()
    start = started(create(conversation))
    for response_id in ("resp_none", start.response_id):
        assert errors(cancel(conversation, response_id=response_id)) == [
            (400, "response_not_found", "response_id")
        ]


def test_steering_is_refused_with_its_words() -> None:
    """The client gets back what could not be used."""
    steered = [{"type": "message", "role": "user", "content": "left"}]
    body = {"type": "response.steer", "previous_response_id": "r", "input": steered}
    conversation = protocol()
    for number in range(2):
        (frame,) = frames(conversation.receive(json.dumps(body)))
        assert frame["type"] == "response.steer.failed"
        assert frame["error"]["code"] == "steering_not_supported"
        assert frame["steer"] == {"previous_response_id": "r", "input": "left"}
        assert frame["sequence_number"] == number


def test_draining_refuses_what_waits_and_what_comes() -> None:
    """What runs goes on to its end; nothing else begins."""
    conversation = protocol()
    start = started(create(conversation))
    create(conversation)
    conversation.drain()
    assert errors(create(conversation, stream_id="a")) == [(503, "server_is_overloaded", None)]
    assert frames(conversation.on_event(start.response_id, Accepted("fake", needs_load=False)))
    effects = conversation.on_event(start.response_id, FINISHED)
    assert frames(effects)[-1]["type"] == "response.completed"
    effects = conversation.on_ended(start.response_id)
    assert errors(effects) == [(503, "server_is_overloaded", None)]
    assert conversation.in_flight == 0


def test_cancel_all_ends_each_request_once() -> None:
    """At the end of the host every request gets its terminal event, created or not."""
    conversation = protocol()
    created = started(create(conversation, stream_id="a"))
    conversation.on_event(created.response_id, Accepted("fake", needs_load=False))
    waiting = started(create(conversation, stream_id="b"))
    conversation.drain()
    effects = conversation.cancel_all()
    assert kinds_of(frames(effects)) == ["response.incomplete", "error"]
    stops = [effect for effect in effects if isinstance(effect, Stop)]
    assert stops == [Stop(created.response_id), Stop(waiting.response_id)]
    assert conversation.cancel_all() == []
    assert conversation.on_ended(created.response_id) == []
    assert conversation.on_ended(waiting.response_id) == []


def test_frames_can_always_be_encoded() -> None:
    """A model's file name that is no UTF-8 does not end the connection."""
    conversation = protocol()
    start = started(create(conversation))
    effects = conversation.on_event(start.response_id, Accepted("fake\udcff", needs_load=True))
    assert all(effect.text.encode() for effect in effects if isinstance(effect, Send))
