"""The server's frames as JSON objects: shapes only, no order and no state."""

from __future__ import annotations

import json
from typing import cast

from pydantic import JsonValue

from omlx_tui.engines.types import Finished, Logprob, Tool, ToolCall
from omlx_tui.gateway.commands import CreateResponse, SteerResponse
from omlx_tui.gateway.problems import Failure, JsonObject, Problem


def encode(frame: JsonObject) -> str:
    """One frame as text.

    In ASCII, so that it can be sent whatever a file name or a message held: a lone surrogate from
    an undecodable path would otherwise end the connection.
    """
    return json.dumps(frame, separators=(",", ":"), allow_nan=False)


def error_frame(problem: Problem, stream_id: str | None) -> JsonObject:
    """The refusal of a frame for which nothing was created."""
    error: JsonObject = {
        "type": problem.type,
        "code": problem.code,
        "message": problem.message,
        "param": problem.param,
    }
    if problem.retry_after_s is not None:
        error["headers"] = {"retry-after": str(problem.retry_after_s)}
    if problem.omlx is not None:
        error["omlx"] = problem.omlx
    frame: JsonObject = {"type": "error", "status": problem.status, "error": error}
    if stream_id is not None:
        frame["stream_id"] = stream_id
    return frame


def steer_failed_frame(command: SteerResponse, sequence_number: int) -> JsonObject:
    """The answer to every attempt at steering."""
    return {
        "type": "response.steer.failed",
        "sequence_number": sequence_number,
        "error": {
            "type": "invalid_request_error",
            "code": "steering_not_supported",
            "message": "Models here can't be steered. Cancel the response and send a new one.",
        },
        "steer": {"previous_response_id": command.previous_response_id, "input": command.text},
    }


def text_part(text: str, logprobs: list[JsonValue]) -> JsonObject:
    """What a model says."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def reasoning_part(text: str) -> JsonObject:
    """What a model thinks."""
    return {"type": "reasoning_text", "text": text}


def message_item(item_id: str, status: str, content: list[JsonValue]) -> JsonObject:
    """The item of a model's words."""
    return {
        "type": "message",
        "id": item_id,
        "status": status,
        "role": "assistant",
        "content": content,
    }


def reasoning_item(item_id: str, status: str, content: list[JsonValue]) -> JsonObject:
    """The item of a model's thoughts. They are shown as they are; nobody sums them up."""
    return {"type": "reasoning", "id": item_id, "status": status, "summary": [], "content": content}


def call_item(
    item_id: str, status: str, call: ToolCall, *, arguments: str | None = None
) -> JsonObject:
    """The item of one call, with the arguments that are written so far."""
    return {
        "type": "function_call",
        "id": item_id,
        "status": status,
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments if arguments is None else arguments,
    }


def logprob(entry: Logprob) -> JsonObject:
    """One token of a text and the likeliest at its place."""
    top: list[JsonValue] = [_token(other) for other in entry.top]
    token = _token(entry)
    token["top_logprobs"] = top
    return token


def _token(entry: Logprob) -> JsonObject:
    utf8: list[JsonValue] = list(entry.utf8)
    return {"token": entry.token, "bytes": utf8, "logprob": entry.logprob}


def usage(finished: Finished) -> JsonObject:
    """What a generation cost, in tokens."""
    return {
        "input_tokens": finished.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": finished.cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": finished.generated_tokens,
        "output_tokens_details": {"reasoning_tokens": finished.reasoning_tokens},
        "total_tokens": finished.prompt_tokens + finished.generated_tokens,
    }


def response_object(
    create: CreateResponse,
    *,
    response_id: str,
    model: str,
    created_at: int,
    status: str,
    completed_at: int | None = None,
    output: list[JsonValue],
    incomplete_reason: str | None = None,
    failure: Failure | None = None,
    usage: JsonObject | None = None,
) -> JsonObject:
    """A whole ``Response``, with every key that Open Responses (2026-04-24) requires."""
    sampling = create.sampling
    tools: list[JsonValue] = [_tool(tool) for tool in create.tools]
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": completed_at,
        "status": status,
        "error": {"code": failure.code, "message": failure.message} if failure else None,
        "incomplete_details": {"reason": incomplete_reason} if incomplete_reason else None,
        "model": model,
        "instructions": create.instructions,
        "output": output,
        "usage": usage,
        "metadata": dict(create.metadata),
        # The protocol wants numbers; where the model's own default is used it is not known here,
        # and the protocol's default stands in.
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "presence_penalty": sampling.presence_penalty or 0.0,
        "frequency_penalty": sampling.frequency_penalty or 0.0,
        "max_output_tokens": create.max_output_tokens,
        "previous_response_id": create.previous_response_id,
        "top_logprobs": create.top_logprobs or 0,
        "reasoning": create.reasoning,
        "tools": tools,
        "tool_choice": create.tool_choice,
        "parallel_tool_calls": create.parallel_tool_calls,
        # What is not done here, said truthfully.
        "store": False,
        "background": False,
        "truncation": "disabled",
        "text": {"format": {"type": "text"}},
        "max_tool_calls": None,
        "service_tier": "default",
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


def _tool(tool: Tool) -> JsonObject:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or None,
        "parameters": cast("JsonObject", dict(tool.parameters)),
        # Nothing holds a model to the schema.
        "strict": False,
    }
