"""Frames of clients, read without a connection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omlx_tui.engines.types import Message, SamplingParams
from omlx_tui.gateway.commands import (
    CancelResponse,
    CreateResponse,
    RefusedCreate,
    SteerResponse,
)
from omlx_tui.gateway.inputs import parse_frame
from omlx_tui.gateway.problems import ProtocolError


def create(**fields: Any) -> CreateResponse | RefusedCreate:
    body = {"type": "response.create", "model": "m", "input": "Hello!"} | fields
    command = parse_frame(json.dumps(body))
    assert isinstance(command, CreateResponse | RefusedCreate)
    return command


def accepted(**fields: Any) -> CreateResponse:
    command = create(**fields)
    assert isinstance(command, CreateResponse), command
    return command


def refused(**fields: Any) -> tuple[int, str, str | None]:
    command = create(**fields)
    assert isinstance(command, RefusedCreate), command
    return command.problem.status, command.problem.code, command.problem.param


def test_a_flat_body_is_read_whole() -> None:
    """Every parameter that changes the answer reaches the engine's request."""
    command = accepted(
        instructions="Be brief.",
        temperature=0,
        top_p=0.5,
        top_k=4,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        seed=7,
        max_output_tokens=9,
        stop=["a", "b"],
        metadata={"k": "v"},
        stream_id="lane",
    )
    assert command == CreateResponse(
        stream_id="lane",
        model="m",
        messages=(Message("user", "Hello!"),),
        instructions="Be brief.",
        max_output_tokens=9,
        sampling=SamplingParams(
            temperature=0.0,
            top_p=0.5,
            top_k=4,
            min_p=0.1,
            presence_penalty=1.0,
            frequency_penalty=-1.0,
            seed=7,
        ),
        stop=("a", "b"),
        metadata={"k": "v"},
    )


def test_a_body_nested_under_response_is_read_like_a_flat_one() -> None:
    """Some clients nest the body; the lane may stand inside or outside."""
    nested = {"model": "m", "input": "Hello!", "temperature": 1}
    outside = parse_frame(
        json.dumps({"type": "response.create", "stream_id": "a", "response": nested})
    )
    inside = parse_frame(
        json.dumps({"type": "response.create", "response": nested | {"stream_id": "a"}})
    )
    assert outside == inside == accepted(temperature=1, stream_id="a")


def test_nulls_and_unknown_keys_are_as_if_they_were_not_there() -> None:
    """Clients write null for what they don't set, and keys of protocols to come."""
    command = accepted(
        temperature=None,
        previous_response_id=None,
        tools=None,
        stream=True,
        stream_id=None,
        store=True,
        service_tier="flex",
        from_the_future={"a": [1]},
    )
    assert command == accepted()


INPUTS: list[tuple[Any, list[Message]]] = [
    ("Hi", [Message("user", "Hi")]),
    ([{"role": "user", "content": "Hi"}], [Message("user", "Hi")]),
    (
        [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_text", "text": "b"},
                ],
            },
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "c", "annotations": []}],
            },
            {"role": "user", "content": "d"},
        ],
        [Message("user", "ab"), Message("assistant", "c"), Message("user", "d")],
    ),
    (
        [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}],
        [Message("system", "x"), Message("user", "y")],
    ),
]


@pytest.mark.parametrize(("value", "messages"), INPUTS)
def test_input_in_each_of_its_forms(value: Any, messages: list[Message]) -> None:
    """A string, messages with strings, messages with parts, and every role."""
    assert list(accepted(input=value).messages) == messages


def test_one_stop_string_is_a_list_of_one() -> None:
    """`stop` may be a string or a list."""
    assert accepted(stop="END").stop == ("END",)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": None}, "missing_required_parameter", "input"),
        ({"input": ""}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": 5}, "invalid_type", "input"),
        ({"input": ["Hi"]}, "invalid_type", "input[0]"),
        ({"input": [{"role": "robot", "content": ""}]}, "invalid_value", "input[0].role"),
        ({"input": [{"role": ["user"], "content": ""}]}, "invalid_value", "input[0].role"),
        ({"input": [{"role": "user"}]}, "invalid_type", "input[0].content"),
        ({"input": [{"role": "user", "content": [3]}]}, "invalid_type", "input[0].content[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]},
            "invalid_type",
            "input[0].content[0].text",
        ),
        ({"model": 3}, "invalid_type", "model"),
        ({"model": ""}, "invalid_value", "model"),
        ({"model": "m" * 600}, "invalid_value", "model"),
        ({"instructions": []}, "invalid_type", "instructions"),
        ({"temperature": "0.5"}, "invalid_type", "temperature"),
        ({"temperature": 3}, "invalid_value", "temperature"),
        ({"temperature": True}, "invalid_type", "temperature"),
        ({"top_p": 0}, "invalid_value", "top_p"),
        ({"top_k": 1.5}, "invalid_type", "top_k"),
        ({"seed": -1}, "invalid_value", "seed"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"max_output_tokens": True}, "invalid_type", "max_output_tokens"),
        ({"stop": [1]}, "invalid_type", "stop[0]"),
        ({"stop": ""}, "invalid_value", "stop[0]"),
        ({"stop": ["x"] * 17}, "invalid_value", "stop"),
        ({"metadata": {"k": 1}}, "invalid_type", "metadata.k"),
        ({"metadata": {"k" * 65: "v"}}, "invalid_value", "metadata." + "k" * 65),
        ({"response": 7}, "invalid_type", "response"),
        ({"top_logprobs": 21}, "invalid_value", "top_logprobs"),
        ({"include": "x"}, "invalid_type", "include"),
        ({"generate": 0}, "invalid_type", "generate"),
        ({"reasoning": "high"}, "invalid_type", "reasoning"),
        ({"reasoning": {"effort": "huge"}}, "invalid_value", "reasoning.effort"),
        ({"previous_response_id": 1}, "invalid_type", "previous_response_id"),
        ({"input": False, "generate": False}, "invalid_type", "input"),
        ({"tools": {}}, "invalid_type", "tools"),
        ({"tools": ["f"]}, "invalid_type", "tools[0]"),
        ({"tools": [{"type": "function"}]}, "invalid_value", "tools[0].name"),
        (
            {"tools": [{"type": "function", "name": "f", "parameters": []}]},
            "invalid_type",
            "tools[0].parameters",
        ),
        (
            {"tools": [{"type": "function", "name": "f", "description": 1}]},
            "invalid_type",
            "tools[0].description",
        ),
        ({"tools": [{"type": "function", "name": "f"}] * 2}, "invalid_value", "tools"),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f"}]},
            "invalid_type",
            "input[0].arguments",
        ),
        (
            {"input": [{"type": "function_call_output", "output": "x"}]},
            "invalid_type",
            "input[0].call_id",
        ),
        ({"input": [{"type": "reasoning", "content": "x"}]}, "invalid_type", "input[0].content"),
    ],
)
def test_wrong_values_are_refused_with_their_place(
    fields: dict[str, Any], code: str, param: str
) -> None:
    """The refusal says which field is wrong, and whether its type or its value is."""
    assert refused(**fields) == (400, code, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_object"}}}, "text"),
        ({"text": 3}, "text"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(
    fields: dict[str, Any], param: str
) -> None:
    """Nothing that a client counts on is left out silently."""
    assert refused(**fields) == (400, "unsupported_parameter", param)


@pytest.mark.parametrize(
    "fields",
    [
        {"generate": True},
        {"background": False},
        {"tools": []},
        {"tool_choice": "auto"},
        {"text": {"format": {"type": "text"}, "verbosity": "low"}},
        {"top_logprobs": 0},
        {"include": ["reasoning.encrypted_content"]},
        {"truncation": "auto"},
    ],
)
def test_values_that_ask_for_nothing_are_accepted(fields: dict[str, Any]) -> None:
    """Clients spell out defaults; that is no reason to refuse them."""
    assert accepted(**fields) == accepted()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("[1]", "invalid_json"),
        ("null", "invalid_json"),
        ("[" * 5000, "invalid_json"),
        ('{"type":"response.create","input":"\\ud800"}', "invalid_json"),
        ('{"type":"response.create","temperature":NaN}', "invalid_json"),
        (b"\xff\x00", "invalid_json"),
        ("{}", "unknown_event_type"),
        ('{"type":3}', "unknown_event_type"),
        ('{"type":"session.update"}', "unknown_event_type"),
        ('{"type":"response.create","stream_id":""}', "invalid_stream_id"),
        ('{"type":"response.create","stream_id":5}', "invalid_stream_id"),
        ('{"type":"response.create","stream_id":"a b"}', "invalid_stream_id"),
        ('{"type":"response.create","stream_id":"a\\n"}', "invalid_stream_id"),
        ('{"type":"response.cancel","response_id":5}', "invalid_type"),
        ('{"type":"response.steer","input":"x"}', "invalid_type"),
        ('{"type":"response.steer","previous_response_id":"r","input":1e999}', "invalid_type"),
    ],
)
def test_frames_without_a_place_are_errors_at_once(frame: str | bytes, code: str) -> None:
    """What is no prompt in a lane is answered with a 400, never with an exception."""
    with pytest.raises(ProtocolError) as caught:
        parse_frame(frame)
    assert (caught.value.problem.status, caught.value.problem.code) == (400, code)


def test_an_error_knows_its_lane() -> None:
    """An unknown event's refusal goes to the lane that the event named."""
    with pytest.raises(ProtocolError) as caught:
        parse_frame('{"type":"nonsense","stream_id":"a"}')
    assert caught.value.stream_id == "a"


def test_cancel_and_steer_are_read() -> None:
    """The two events beside response.create."""
    assert parse_frame('{"type":"response.cancel","response_id":"r"}') == CancelResponse(
        response_id="r", stream_id=None
    )
    steer = '{"type":"response.steer","previous_response_id":"r","input":"x"}'
    assert parse_frame(steer) == SteerResponse(previous_response_id="r", text="x")
