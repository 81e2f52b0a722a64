"""Going on from an earlier response of the same connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from omlx_tui.engines.errors import ToolsNotSupportedError
from omlx_tui.engines.types import Finished, FinishReason, Message, TextDelta, ToolCall, ToolCalled
from omlx_tui.gateway.protocol import ResponsesProtocol, Start
from omlx_tui.pool.serving import Accepted, RequestEvent
from tests.gateway.test_protocol import FINISHED, cancel, create, errors, frames, protocol, started

ACCEPTED = Accepted("fake", needs_load=False)


def say(conversation: ResponsesProtocol, start: Start, *events: RequestEvent) -> str:
    """Answer a request whole; returns its id."""
    for event in (ACCEPTED, *events):
        conversation.on_event(start.response_id, event)
    conversation.on_ended(start.response_id)
    return start.response_id


def ask(conversation: ResponsesProtocol, text: str, said: str, **fields: Any) -> str:
    start = started(create(conversation, input=text, **fields))
    return say(conversation, start, TextDelta(said, 1), FINISHED)


def words(start: Start) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in start.request.messages]


def test_a_conversation_goes_on() -> None:
    """The model is sent all that was said, three turns deep, and the answer names what it follows.

    Instructions hold for one request and are not remembered.
    """
    conversation = protocol()
    first = ask(conversation, "one", "eins", instructions="Be German.")
    second = ask(conversation, "two", "zwei", previous_response_id=first)
    start = started(create(conversation, input="three", previous_response_id=second))
    assert words(start) == [
        *(("user", "one"), ("assistant", "eins")),
        *(("user", "two"), ("assistant", "zwei")),
        ("user", "three"),
    ]
    (created, *_) = frames(conversation.on_event(start.response_id, ACCEPTED))
    assert created["response"]["previous_response_id"] == second


def test_a_call_is_answered_in_the_next_request() -> None:
    """The result alone is enough: the call is remembered, and gives it its function's name."""
    conversation = protocol()
    start = started(create(conversation, tools=[{"type": "function", "name": "f"}]))
    call = ToolCall("call_x", "f", "{}")
    asked = say(conversation, start, ToolCalled(call, 1), FINISHED)
    result = {"type": "function_call_output", "call_id": "call_x", "output": "42"}
    start = started(create(conversation, input=[result], previous_response_id=asked))
    assert start.request.messages[1:] == (
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "42", call_id="call_x", name="f"),
    )


def test_a_result_without_its_call_is_refused_at_its_turn() -> None:
    """And the lane is free for the next one."""
    conversation = protocol()
    result = {"type": "function_call_output", "call_id": "call_x", "output": "42"}
    assert errors(create(conversation, input=[result])) == [(400, "invalid_value", "input")]
    assert started(create(conversation))


def test_only_the_latest_of_a_lane_is_kept() -> None:
    """Each lane has its own; what was overtaken or never was can't be continued."""
    conversation = protocol()
    old = ask(conversation, "a", "A", stream_id="x")
    new = ask(conversation, "b", "B", stream_id="x")
    other = ask(conversation, "c", "C", stream_id="y")
    not_found = [(400, "previous_response_not_found", "previous_response_id")]
    for lost in (old, "resp_never"):
        effects = create(conversation, previous_response_id=lost, store=False)
        assert errors(effects) == not_found
    assert words(started(create(conversation, input="d", previous_response_id=new)))[0][1] == "b"
    across = started(create(conversation, input="e", previous_response_id=other, stream_id="z"))
    assert words(across) == [("user", "c"), ("assistant", "C"), ("user", "e")]


def test_what_failed_leaves_the_one_before_it() -> None:
    """A client can try again from where it was, after an error as after a cancel."""
    conversation = protocol()
    good = ask(conversation, "a", "A")
    failed = started(create(conversation, previous_response_id=good))
    conversation.on_event(failed.response_id, ACCEPTED)
    conversation.on_ended(failed.response_id, RuntimeError("boom"))
    cancelled = started(create(conversation, previous_response_id=good))
    conversation.on_event(cancelled.response_id, ACCEPTED)
    cancel(conversation, response_id=cancelled.response_id)
    conversation.on_ended(cancelled.response_id)
    for lost in (failed, cancelled):
        assert errors(create(conversation, previous_response_id=lost.response_id))
    assert started(create(conversation, previous_response_id=good))


def test_an_answer_that_was_cut_can_be_continued() -> None:
    """The token limit is no failure: the client may ask for more."""
    conversation = protocol()
    start = started(create(conversation))
    cut = Finished(reason=FinishReason.LENGTH, prompt_tokens=1, generated_tokens=1)
    asked = say(conversation, start, TextDelta("Hal", 1), cut)
    more = started(create(conversation, input=[], previous_response_id=asked))
    assert words(more) == [("user", "Hi"), ("assistant", "Hal")]


def test_it_can_be_continued_as_soon_as_its_end_is_told() -> None:
    """Another lane may go on before the pool has let go of the first one's model."""
    conversation = protocol()
    start = started(create(conversation, stream_id="x"))
    conversation.on_event(start.response_id, ACCEPTED)
    conversation.on_event(start.response_id, FINISHED)
    following = create(conversation, stream_id="y", previous_response_id=start.response_id)
    assert started(following)


def test_a_warm_up_can_be_continued() -> None:
    """It is asked of the pool as one, says nothing, and what it was given comes first."""
    conversation = protocol()
    start = started(create(conversation, input="context", generate=False))
    assert start.request.is_warm_up
    warm = say(conversation, start, FINISHED)
    following = started(create(conversation, input="question", previous_response_id=warm))
    assert words(following) == [("user", "context"), ("user", "question")]
    assert not following.request.is_warm_up


def test_a_warm_up_of_a_model_alone() -> None:
    """It needs no input; an answer does."""
    conversation = protocol()
    start = started(create(conversation, input=None, generate=False))
    assert start.request.messages == ()
    warm = say(conversation, start, FINISHED)
    effects = create(conversation, input=None, previous_response_id=warm)
    assert errors(effects) == [(400, "invalid_value", "input")]


def test_what_a_client_asked_for_reaches_the_engine() -> None:
    """Tools that may be called, how much to think, and which log probabilities."""
    tools = [{"type": "function", "name": name} for name in "ab"]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "b"}]}
    request = started(
        create(
            protocol(),
            tools=tools,
            tool_choice=allowed,
            parallel_tool_calls=False,
            reasoning={"effort": "none"},
            top_logprobs=3,
        )
    ).request
    assert [tool.name for tool in request.tools] == ["b"]
    assert request.parallel_tool_calls is False
    assert request.thinking == "off"
    assert request.top_logprobs == 3


@pytest.mark.parametrize(
    ("fields", "top"),
    [
        ({}, None),
        ({"top_logprobs": 0}, None),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, 2),
    ],
)
def test_log_probabilities_are_asked_for_in_two_ways(
    fields: dict[str, Any], top: int | None
) -> None:
    """By their number, or by including them; by default there are none."""
    assert started(create(protocol(), **fields)).request.top_logprobs == top


def refusal_of(effects: Sequence[Any]) -> tuple[int, str, str | None]:
    (error,) = errors(effects)
    return error


def test_a_model_without_tools_says_so() -> None:
    """Before anything was created: the client can send the same without tools."""
    conversation = protocol()
    start = started(create(conversation, tools=[{"type": "function", "name": "f"}]))
    effects = conversation.on_ended(start.response_id, ToolsNotSupportedError("fake"))
    assert refusal_of(effects) == (400, "tools_not_supported", "tools")
