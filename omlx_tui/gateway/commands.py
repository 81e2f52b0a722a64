"""What a client may ask for, typed: the parser's output and the protocol's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from omlx_tui.engines.types import Message, SamplingParams, Thinking, Tool
from omlx_tui.gateway.problems import JsonObject, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateResponse:
    """A prompt.

    Attributes:
        stream_id: the lane.
        model: None means the host's choice.
        messages: the input alone; what comes before it has the id ``previous_response_id``.
        tools: all that were sent, and ``offered_tools`` those of them that ``tool_choice`` leaves.
        tool_choice, reasoning: as they were sent, to be echoed.
        top_logprobs: None sends no log probabilities.
        is_warm_up: load and read the prompt, but answer nothing.
    """

    stream_id: str | None
    model: str | None
    messages: tuple[Message, ...]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    offered_tools: tuple[Tool, ...] = ()
    tool_choice: JsonValue = "auto"
    parallel_tool_calls: bool = True
    thinking: Thinking | None = None
    reasoning: JsonObject | None = None
    top_logprobs: int | None = None
    is_warm_up: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCreate:
    """A prompt that can't be served as it is written.

    It still takes its turn in its lane: an error frame in the middle of the answer before it would
    read as that answer's error.
    """

    stream_id: str | None
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResponse:
    """End a response. Without an id: the one that is running in the lane."""

    response_id: str | None
    stream_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SteerResponse:
    """More input for a running response, which no model here can take; its words are sent back."""

    previous_response_id: str
    text: str


Command = CreateResponse | RefusedCreate | CancelResponse | SteerResponse
