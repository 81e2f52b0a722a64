"""Items of ``input`` as the turns that a chat template takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omlx_tui.engines.types import Message, ToolCall
from omlx_tui.gateway.messages import as_conversation, read_messages
from omlx_tui.gateway.problems import ProtocolError

CALL = ToolCall("call_1", "weather", '{"city":"Oslo"}')
CALL_ITEM = {
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city":"Oslo"}',
}
OUTPUT_ITEM = {"type": "function_call_output", "call_id": "call_1", "output": "-3 °C"}


def thought(text: str) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
    }


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def turns(*items: Any, instructions: str | None = None) -> list[Message]:
    read = read_messages(json.loads(json.dumps(items)))
    return list(as_conversation(read, instructions))


def test_a_round_of_a_tool_is_three_turns() -> None:
    """The thought, the words and the call before an answer are one turn of the assistant."""
    assert turns(
        said("user", "How cold is it?"),
        thought("I must look."),
        said("assistant", "Let me see."),
        CALL_ITEM,
        OUTPUT_ITEM,
        said("user", "And tomorrow?"),
    ) == [
        Message("user", "How cold is it?"),
        Message("assistant", "Let me see.", reasoning="I must look.", tool_calls=(CALL,)),
        Message("tool", "-3 °C", call_id="call_1", name="weather"),
        Message("user", "And tomorrow?"),
    ]


def test_calls_at_once_are_one_turn() -> None:
    """Parallel calls stand in one turn, and each answer knows its function."""
    other = CALL_ITEM | {"call_id": "call_2", "name": "time"}
    answers = [OUTPUT_ITEM, OUTPUT_ITEM | {"call_id": "call_2"}]
    _, made, first, second = turns(said("user", "x"), CALL_ITEM, other, *answers)
    assert [call.call_id for call in made.tool_calls] == ["call_1", "call_2"]
    assert (first.name, second.name) == ("weather", "time")


def test_two_answers_of_the_assistant_stay_two() -> None:
    """Only what one answer consists of is joined."""
    assert turns(said("assistant", "a"), said("assistant", "b"), thought("c")) == [
        Message("assistant", "a"),
        Message("assistant", "b"),
        Message("assistant", "", reasoning="c"),
    ]


def test_thoughts_in_each_of_their_forms() -> None:
    """The thought itself, else its summary, else nothing: an encrypted one can't be read here."""
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}
    encrypted = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    assert turns(thought("long") | {"summary": summary["summary"]})[0].reasoning == "long"
    assert turns(summary)[0].reasoning == "short"
    assert turns(encrypted, said("assistant", "x")) == [Message("assistant", "x")]


def test_an_output_may_be_a_list_of_texts() -> None:
    """Clients send what a function returned as a string or as parts."""
    parts = [{"type": "input_text", "text": "-3"}, {"type": "input_text", "text": " °C"}]
    assert turns(CALL_ITEM, OUTPUT_ITEM | {"output": parts})[-1].content == "-3 °C"


def test_an_answer_to_no_call_is_refused() -> None:
    """A client that lost the call learns which one it was."""
    with pytest.raises(ProtocolError, match="call_1") as caught:
        turns(said("user", "x"), OUTPUT_ITEM)
    problem = caught.value.problem
    assert (problem.status, problem.code, problem.param) == (400, "invalid_value", "input")


def test_instructions_and_leading_system_messages_are_one_message() -> None:
    """Chat templates that take only the first system message see all of it."""
    assert turns(
        said("system", "two"), said("user", "Hi"), said("developer", "three"), instructions="one"
    ) == [Message("system", "one\n\ntwo"), Message("user", "Hi"), Message("system", "three")]


@pytest.mark.parametrize("value", [None, "", []])
def test_an_input_may_be_left_out_where_it_may(value: Any) -> None:
    """A warm-up and a continuation need none."""
    assert read_messages(value, may_be_empty=True) == ()
    with pytest.raises(ProtocolError):
        read_messages(value)
