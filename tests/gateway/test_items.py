"""Answers that are more than words: thoughts, calls, log probabilities, and none at all."""

from __future__ import annotations

from typing import Any

import pytest

from omlx_tui.engines.types import (
    FinishReason,
    Logprob,
    Message,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolCall,
    ToolCalled,
)
from omlx_tui.pool.serving import Accepted
from tests.gateway.fakes import Frame, kinds_of
from tests.gateway.test_responses import CLOSING, OPENING, feed, finished, stream

ACCEPTED = Accepted("m", needs_load=False)
STOP = finished(FinishReason.STOP)
CALL = ToolCall("", "weather", '{"city":"Oslo"}')


def outputs(frames: list[Frame]) -> list[dict[str, Any]]:
    return frames[-1]["response"]["output"]


def test_thoughts_words_and_a_call_are_three_items() -> None:
    """Each in its place, with events of its own kind, and the last event repeats them all."""
    response = stream()
    frames = feed(
        response,
        ACCEPTED,
        ReasoningDelta("Let me ", 1),
        ReasoningDelta("think.", 2),
        TextDelta("Oslo?", 3),
        ToolCalled(CALL, 9),
        STOP,
    )
    assert kinds_of(frames) == [
        *OPENING,
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        *CLOSING[1:],
        *OPENING[2:],
        "response.output_text.delta",
        *CLOSING,
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    indexes = [frame["output_index"] for frame in frames if "output_index" in frame]
    assert indexes == sorted(indexes)
    assert set(indexes) == {0, 1, 2}
    thought, words, call = outputs(frames)
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me think."}]
    assert words["content"][0]["text"] == "Oslo?"
    assert (call["name"], call["arguments"]) == ("weather", '{"city":"Oslo"}')
    assert [item["status"] for item in outputs(frames)] == ["completed"] * 3
    assert len({item["id"] for item in outputs(frames)}) == 3


def test_the_events_of_an_item_agree_with_it() -> None:
    """A client may follow the deltas, the item's end or the response's: it sees the same."""
    frames = feed(stream(), ACCEPTED, ReasoningDelta("Hm.", 1), ToolCalled(CALL, 2), STOP)
    ended = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert ended == outputs(frames)
    for item in ended:
        deltas = [f["delta"] for f in frames if "delta" in f and f["item_id"] == item["id"]]
        whole = item["arguments"] if "arguments" in item else item["content"][0]["text"]
        assert "".join(deltas) == whole


def test_a_call_without_an_id_gets_one() -> None:
    """A client answers a call by its id; one that the model gave is kept."""
    unnamed = feed(stream(), ACCEPTED, ToolCalled(CALL, 1), STOP)
    named = feed(stream(), ACCEPTED, ToolCalled(ToolCall("abc", "weather", "{}"), 1), STOP)
    assert outputs(unnamed)[0]["call_id"].startswith("call_")
    assert outputs(named)[0]["call_id"] == "abc"


def test_a_call_is_an_answer() -> None:
    """No empty message stands beside it."""
    frames = feed(stream(), ACCEPTED, ToolCalled(CALL, 1), ToolCalled(CALL, 2), STOP)
    assert [item["type"] for item in outputs(frames)] == ["function_call"] * 2


def test_a_thought_alone_is_no_answer() -> None:
    """A model that thought and then said nothing has answered with an empty text."""
    frames = feed(stream(), ACCEPTED, ReasoningDelta("Hm.", 1), STOP)
    assert [item["type"] for item in outputs(frames)] == ["reasoning", "message"]


def test_an_answer_that_is_cut_in_its_thoughts_has_not_begun() -> None:
    """The client sees where the limit struck."""
    frames = feed(stream(), ACCEPTED, ReasoningDelta("Hm", 1), finished(FinishReason.LENGTH))
    (item,) = outputs(frames)
    assert (item["type"], item["status"]) == ("reasoning", "incomplete")
    assert frames[-1]["type"] == "response.incomplete"


def test_a_cancelled_call_keeps_what_was_whole() -> None:
    """What the client has seen is in the last event too."""
    response = stream()
    feed(response, ACCEPTED, ToolCalled(CALL, 1), TextDelta("And", 2))
    *_, last = response.cancel()
    call, words = last["response"]["output"]
    assert (call["status"], words["status"]) == ("completed", "incomplete")


def test_a_warm_up_answers_nothing() -> None:
    """Created and completed, without an item."""
    frames = feed(stream(is_warm_up=True), ACCEPTED, STOP)
    assert kinds_of(frames) == [*OPENING[:2], "response.completed"]
    assert outputs(frames) == []


def test_log_probabilities_are_with_their_text() -> None:
    """In the delta, at the text's end, and in the item: token, bytes, and its rivals."""
    rival = Logprob("Ha", b"Ha", -2.0)
    entry = Logprob("Hé", "Hé".encode(), -0.5, top=(rival,))
    frames = feed(
        stream(top_logprobs=1), ACCEPTED, TextDelta("Hé", 1, (entry,)), TextDelta("!", 2), STOP
    )
    shown = {
        "token": "Hé",
        "bytes": [72, 195, 169],
        "logprob": -0.5,
        "top_logprobs": [{"token": "Ha", "bytes": [72, 97], "logprob": -2.0}],
    }
    carried = [frame["logprobs"] for frame in frames if "logprobs" in frame]
    assert carried == [[shown], [], [shown]]
    assert outputs(frames)[0]["content"][0]["logprobs"] == [shown]
    assert frames[-1]["response"]["top_logprobs"] == 1


def test_what_was_asked_for_is_echoed() -> None:
    """A client can read from the response how it was made."""
    created, *_ = feed(
        stream(
            tools=(Tool("f", "Does.", {"type": "object"}),),
            tool_choice="none",
            parallel_tool_calls=False,
            reasoning={"effort": "low", "summary": None},
            previous_response_id="resp_0",
        ),
        ACCEPTED,
    )
    response = created["response"]
    assert response["tools"] == [
        {
            "type": "function",
            "name": "f",
            "description": "Does.",
            "parameters": {"type": "object"},
            "strict": False,
        }
    ]
    assert response["tool_choice"] == "none"
    assert response["parallel_tool_calls"] is False
    assert response["reasoning"]["effort"] == "low"
    assert response["previous_response_id"] == "resp_0"


@pytest.mark.parametrize("warm_up", [False, True])
def test_a_turn_of_the_conversation(warm_up: bool) -> None:
    """What was said comes back as one message, with its thoughts and calls; a warm-up's doesn't."""
    response = stream(is_warm_up=warm_up)
    events = [ReasoningDelta("Hm.", 1), TextDelta("Oslo?", 2), ToolCalled(CALL, 3)]
    assert not response.is_answered
    feed(response, ACCEPTED, *([] if warm_up else events), STOP)
    assert response.is_answered
    if warm_up:
        assert response.message() is None
        return
    said = response.message()
    assert said is not None
    assert said == Message("assistant", "Oslo?", reasoning="Hm.", tool_calls=said.tool_calls)
    assert said.tool_calls[0].call_id.startswith("call_")
