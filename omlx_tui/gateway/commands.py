"""What a client may ask for, typed: the parser's output and the protocol's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from omlx_tui.engines.types import Message, SamplingParams
from omlx_tui.gateway.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateResponse:
    """A prompt. ``model`` of ``None`` means the host's choice; ``stream_id`` names the lane."""

    stream_id: str | None
    model: str | None
    messages: tuple[Message, ...]
    instructions: str | None
    max_output_tokens: int | None
    sampling: SamplingParams
    stop: tuple[str, ...]
    metadata: Mapping[str, str]


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
    """More input for a running response, which no model here can take."""

    previous_response_id: str
    input: JsonValue


Command = CreateResponse | RefusedCreate | CancelResponse | SteerResponse
