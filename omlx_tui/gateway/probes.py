"""Plain HTTP GETs: what is served beside the sockets, as JSON."""

from __future__ import annotations

import http
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from omlx_tui.gateway.problems import JsonObject
from omlx_tui.gateway.serving import PromptPool
from omlx_tui.pool.snapshot import ModelSnapshot


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: JSON, or text of another type."""

    status: http.HTTPStatus
    body: JsonObject | str
    content_type: str = "application/json"

    def text(self) -> str:
        return self.body if isinstance(self.body, str) else json.dumps(self.body) + "\n"


class Probes:
    """Answers GETs of every path that is no socket."""

    def __init__(self, pool: PromptPool) -> None:
        self._pool = pool
        self._started_at = int(time.time())

    async def answer(self, path: str) -> Answer:
        """What to say to a GET of ``path``."""
        match path:
            case "/healthz":
                return self._health()
            case "/v1/models":
                return Answer(http.HTTPStatus.OK, _model_list(self._pool, self._started_at))
            case _:
                return failure(
                    http.HTTPStatus.NOT_FOUND,
                    "not_found",
                    "Nothing is served here. WebSocket: /v1/responses; GET: /healthz, /v1/models.",
                )

    def _health(self) -> Answer:
        # That this is answered at all says that the loop turns.
        if problem := self._pool.snapshot().problem:
            body: JsonObject = {"status": "failing", "reason": problem}
            return Answer(http.HTTPStatus.SERVICE_UNAVAILABLE, body)
        return Answer(http.HTTPStatus.OK, {"status": "ok"})


def failure(status: http.HTTPStatus, code: str, message: str) -> Answer:
    """A refusal in the shape of the protocol's errors."""
    error: Mapping[str, JsonValue] = {
        "type": "invalid_request_error",
        "code": code,
        "message": message,
        "param": None,
    }
    return Answer(status, {"error": dict(error)})


def _model_list(pool: PromptPool, started_at: int) -> JsonObject:
    models = sorted(pool.snapshot().models, key=lambda model: model.model_id)
    return {"object": "list", "data": [_model(model, started_at) for model in models]}


def _model(model: ModelSnapshot, started_at: int) -> JsonObject:
    return {
        "id": model.model_id,
        "object": "model",
        "created": started_at,
        "owned_by": "omlx-tui",
        "omlx": {
            "state": model.state.value,
            "size": model.weights_bytes,
            "servable": model.is_servable,
            "reason": model.problem,
            "pinned": model.is_pinned,
        },
    }
