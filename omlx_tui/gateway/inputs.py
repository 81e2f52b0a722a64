"""One text frame of a client, turned into a typed command or a typed error."""

from __future__ import annotations

import re
from typing import Annotated, Literal, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails, from_json

from omlx_tui.engines.types import SamplingParams, Thinking
from omlx_tui.gateway.commands import (
    CancelResponse,
    Command,
    CreateResponse,
    RefusedCreate,
    SteerResponse,
)
from omlx_tui.gateway.messages import read_messages
from omlx_tui.gateway.problems import JsonObject, ProtocolError, invalid
from omlx_tui.gateway.tools import offered_tools, read_tools
from omlx_tui.gateway.unsupported import refuse_unsupported

_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_MAX_SEED = 2**63 - 1
_KNOWN_EVENTS = "response.create, response.cancel and response.steer"


_INCLUDED_LOGPROBS = "message.output_text.logprobs"
_THINKING: dict[str, Thinking] = {
    "none": "off",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    # Templates know no more than this.
    "xhigh": "high",
    "max": "high",
}
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class _Reasoning(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    effort: Effort | None = None


class _CreateBody(BaseModel):
    """The scalar parameters of ``response.create``; the others have readers of their own."""

    # Strict: "0.5" is no temperature and true is no count. Ints do count as floats.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    model: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    instructions: str | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, le=2**31 - 1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    seed: int | None = Field(None, ge=0, le=_MAX_SEED)
    max_output_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    previous_response_id: Annotated[str, StringConstraints(max_length=512)] | None = None
    generate: bool = True
    parallel_tool_calls: bool = True
    reasoning: _Reasoning = _Reasoning()
    top_logprobs: int | None = Field(None, ge=0, le=20)
    include: list[str] = Field(default_factory=list[str], max_length=64)
    stop: Annotated[
        list[Annotated[str, StringConstraints(min_length=1)]],
        BeforeValidator(_as_list),
    ] = Field(default_factory=list[str], max_length=16)
    metadata: dict[
        Annotated[str, StringConstraints(max_length=64)],
        Annotated[str, StringConstraints(max_length=512)],
    ] = Field(default_factory=dict[str, str], max_length=16)


def parse_frame(data: str | bytes) -> Command:
    """Read one frame.

    A prompt that can't be served comes back as ``RefusedCreate``: it has a lane, and its error
    waits for its turn there.

    Raises:
        ProtocolError: the frame belongs to no lane, or asks for nothing that is known.
    """
    document = _read_object(data)
    nested = document.get("response")
    body = document | nested if isinstance(nested, dict) else document
    stream_id = _read_stream_id(body)
    try:
        match document.get("type"):
            case "response.create":
                return _read_create(document, body, stream_id)
            case "response.cancel":
                return _read_cancel(document, stream_id)
            case "response.steer":
                return _read_steer(document)
            case kind:
                raise _unknown_event(kind)
    except ProtocolError as error:
        raise ProtocolError(error.problem, stream_id) from None


def _unknown_event(kind: JsonValue) -> ProtocolError:
    said = f"`{kind[:64]}` is not known" if isinstance(kind, str) else "Every frame needs a `type`"
    return invalid(
        "unknown_event_type", f"{said}; this endpoint takes {_KNOWN_EVENTS}.", param="type"
    )


def _read_object(data: str | bytes) -> JsonObject:
    try:
        # Refuses lone surrogates and documents nested hundreds deep, as json.loads would not.
        document = cast("JsonValue", from_json(data, allow_inf_nan=False))
    except ValueError as error:
        raise invalid("invalid_json", f"The frame is not JSON: {error}.") from None
    if not isinstance(document, dict):
        raise invalid("invalid_json", "The frame is not a JSON object.")
    return document


def _read_stream_id(document: JsonObject) -> str | None:
    stream_id = document.get("stream_id")
    if stream_id is None:
        return None
    if not isinstance(stream_id, str) or not _STREAM_ID.fullmatch(stream_id):
        raise invalid(
            "invalid_stream_id",
            "`stream_id` must be 1 to 256 of the characters A-Z a-z 0-9 _ . -",
            param="stream_id",
        )
    return stream_id


def _read_create(
    document: JsonObject, body: JsonObject, stream_id: str | None
) -> CreateResponse | RefusedCreate:
    try:
        if body is document and document.get("response") is not None:
            raise invalid("invalid_type", "`response` must be an object.", param="response")
        return _read_body(body, stream_id)
    except ProtocolError as error:
        return RefusedCreate(stream_id=stream_id, problem=error.problem)


def _read_cancel(document: JsonObject, stream_id: str | None) -> CancelResponse:
    response_id = document.get("response_id")
    if response_id is not None and not isinstance(response_id, str):
        raise invalid("invalid_type", "`response_id` must be a string.", param="response_id")
    return CancelResponse(response_id=response_id, stream_id=stream_id)


def _read_body(body: JsonObject, stream_id: str | None) -> CreateResponse:
    # Clients write null for "not set".
    given: JsonObject = {name: value for name, value in body.items() if value is not None}
    refuse_unsupported(given)
    try:
        fields = _CreateBody.model_validate(given)
    except ValidationError as error:
        raise _first_problem(error) from None
    tools = read_tools(given.get("tools"))
    tool_choice = given.get("tool_choice", "auto")
    wants_logprobs = bool(fields.top_logprobs) or _INCLUDED_LOGPROBS in fields.include
    effort = fields.reasoning.effort
    return CreateResponse(
        stream_id=stream_id,
        model=fields.model,
        messages=read_messages(
            given.get("input"),
            # A warm-up may be of a model alone, and a continuation needs no new words.
            may_be_empty=not fields.generate or fields.previous_response_id is not None,
        ),
        instructions=fields.instructions,
        previous_response_id=fields.previous_response_id,
        max_output_tokens=fields.max_output_tokens,
        sampling=_sampling(fields),
        stop=tuple(fields.stop),
        tools=tools,
        offered_tools=offered_tools(tools, tool_choice),
        tool_choice=tool_choice,
        parallel_tool_calls=fields.parallel_tool_calls,
        thinking=_THINKING[effort] if effort else None,
        reasoning={"effort": effort, "summary": None} if effort else None,
        top_logprobs=(fields.top_logprobs or 0) if wants_logprobs else None,
        is_warm_up=not fields.generate,
        metadata=fields.metadata,
    )


def _sampling(fields: _CreateBody) -> SamplingParams:
    return SamplingParams(
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        min_p=fields.min_p,
        presence_penalty=fields.presence_penalty,
        frequency_penalty=fields.frequency_penalty,
        seed=fields.seed,
    )


def _read_steer(document: JsonObject) -> SteerResponse:
    target = document.get("previous_response_id")
    if not isinstance(target, str):
        raise invalid(
            "invalid_type",
            "`previous_response_id` must be a string.",
            param="previous_response_id",
        )
    messages = read_messages(document.get("input"))
    return SteerResponse(
        previous_response_id=target, text="\n\n".join(message.content for message in messages)
    )


def _first_problem(error: ValidationError) -> ProtocolError:
    # One at a time: a client mends what it is told of, and the frame has room for one param.
    details = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = _path(details)
    is_type = details["type"].endswith(("_type", "_from_float"))
    return invalid(
        "invalid_type" if is_type else "invalid_value",
        f"`{param}`: {details['msg']}.",
        param=param,
    )


def _path(details: ErrorDetails) -> str:
    path = ""
    for step in details["loc"]:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != "[key]":
            path += f".{step}" if path else step
    return path[:128]
