"""What is wrong with a request, in the words that clients of the Responses protocol act upon.

Clients decide by status and code whether to send a prompt again, so each code is chosen for what it
makes them do: any 503 but ``server_is_overloaded`` makes some of them try six times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from omlx_tui.engines.errors import (
    ContextLengthError,
    EngineError,
    KVBudgetError,
    PromptRefusedError,
    ToolsNotSupportedError,
)
from omlx_tui.pool.errors import (
    InsufficientMemoryError,
    LoadCancelledError,
    ModelLoadError,
    ModelNotFoundError,
    ModelNotServableError,
    PoolClosedError,
    QueueFullError,
)

JsonObject = dict[str, JsonValue]
ErrorType = Literal["invalid_request_error", "rate_limit_error", "server_error"]

INTERNAL_MESSAGE = "The host failed on this request; its log says why."
CLOSING_MESSAGE = "The host is shutting down and takes no new requests."


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a request is refused before anything was created for it.

    Attributes:
        param: the field of the request at fault, as a path such as ``input[0].role``.
        retry_after_s: when trying again makes sense, for problems that pass.
        omlx: figures of ours, for clients that know them.
    """

    status: int
    type: ErrorType
    code: str
    message: str
    param: str | None = None
    retry_after_s: int | None = None
    omlx: JsonObject | None = None


class ProtocolError(Exception):
    """A client's frame can't be obeyed; the connection lives on.

    Attributes:
        stream_id: the lane that the frame named, if it could be read.
    """

    def __init__(self, problem: Problem, stream_id: str | None = None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.stream_id = stream_id


@dataclass(frozen=True, slots=True)
class Failure:
    """How a response that had been created ends, in its ``error`` object."""

    code: str
    message: str


def invalid(code: str, message: str, *, param: str | None = None) -> ProtocolError:
    """The client's mistake: sending the same frame again is no use."""
    return ProtocolError(
        Problem(status=400, type="invalid_request_error", code=code, message=message, param=param)
    )


def overloaded(message: str, omlx: JsonObject | None = None) -> Problem:
    """No room now; the one 503 that clients don't hammer."""
    return Problem(
        status=503, type="server_error", code="server_is_overloaded", message=message, omlx=omlx
    )


def problem_of(error: Exception) -> Problem:
    """What to answer when the pool refused a request before accepting it."""
    match error:
        case ProtocolError():
            return error.problem
        case ModelNotFoundError():
            return _refused(404, "model_not_found", error, param="model")
        case ModelNotServableError():
            return _refused(400, "model_not_servable", error, param="model")
        case InsufficientMemoryError():
            return _memory_problem(error)
        case QueueFullError():
            return Problem(
                status=429,
                type="rate_limit_error",
                code="rate_limit_exceeded",
                message=str(error),
                retry_after_s=1,
            )
        case ContextLengthError():
            return _refused(400, "context_length_exceeded", error, param="input")
        case ModelLoadError() | LoadCancelledError():
            return overloaded(str(error))
        case PoolClosedError():
            return overloaded(CLOSING_MESSAGE)
        case ToolsNotSupportedError():
            return _refused(400, "tools_not_supported", error, param="tools")
        case PromptRefusedError():
            return _refused(400, "invalid_prompt", error, param="input")
        case KVBudgetError():
            return _refused(400, "insufficient_memory", error, param="max_output_tokens")
        case EngineError():
            return overloaded(str(error))
        case _:
            return Problem(
                status=500, type="server_error", code="server_error", message=INTERNAL_MESSAGE
            )


def failure_of(error: Exception) -> Failure:
    """How a created response ends when the pool raised: ``server_error`` if a retry can help."""
    match error:
        case ContextLengthError():
            return Failure("context_length_exceeded", str(error))
        case ModelLoadError() | LoadCancelledError() | InsufficientMemoryError():
            # The load would fail again, or an operator would have to stop it again.
            return Failure("server_is_overloaded", str(error))
        case PoolClosedError():
            return Failure("server_error", CLOSING_MESSAGE)
        case QueueFullError():
            return Failure("rate_limit_exceeded", str(error))
        case PromptRefusedError() | ToolsNotSupportedError() | KVBudgetError():
            return Failure("invalid_prompt", str(error))
        case EngineError():
            return Failure("server_error", str(error))
        case _:
            return Failure("server_error", INTERNAL_MESSAGE)


def _refused(status: int, code: str, error: Exception, *, param: str) -> Problem:
    return Problem(
        status=status,
        type="invalid_request_error",
        code=code,
        message=str(error),
        param=param,
    )


def _memory_problem(error: InsufficientMemoryError) -> Problem:
    if error.can_never_fit:
        return Problem(
            status=400,
            type="invalid_request_error",
            code="insufficient_memory",
            message=str(error),
            param="model",
            omlx={"needed_bytes": error.needed_bytes, "budget_bytes": error.budget_bytes},
        )
    return overloaded(
        str(error),
        {
            "needed_bytes": error.needed_bytes,
            "freeable_bytes": error.freeable_bytes,
            "blocking": list(error.blocking),
        },
    )
