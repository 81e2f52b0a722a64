"""A small client of the endpoint: what ``omlx-tui prompt`` and the demo speak with."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
)

from omlx_tui import __version__

DEFAULT_PORT = 8765
DEFAULT_URL = f"ws://127.0.0.1:{DEFAULT_PORT}/v1/responses"
_RESPONSES_PATH = "/v1/responses"
_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_LONGEST_FRAME_BYTES = 64 * 1024**2  # the last event repeats the whole answer
_CLOSE_TIMEOUT_S = 1.0

Status = Literal["completed", "incomplete", "cancelled"]


@dataclass(frozen=True, slots=True)
class Loading:
    """The model is being loaded: bytes done, of how many."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class InLine:
    """There is no room for the model yet: the place in the line, 1 is next, and why."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Delta:
    """More of the answer's text; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What the answer cost, in tokens."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end of the answer. ``incomplete`` means that it reached the token limit."""

    usage: Usage
    status: Status
    model: str


PromptEvent = InLine | Loading | Delta | Done


class PromptError(Exception):
    """There was no answer, or no whole one. The message is one line for a person.

    Attributes:
        code: the protocol's code, or one of ours: ``no_host``, ``invalid_url``,
            ``handshake_refused``, ``connection_lost``, ``protocol_error``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def stream_prompt(
    url: str,
    text: str,
    *,
    model: str | None = None,
    instructions: str | None = None,
    max_output_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    client_name: str = "omlx-tui",
) -> AsyncGenerator[PromptEvent, None]:
    """Send one prompt over a connection of its own and yield its events; ``Done`` is the last.

    Closing the generator early, or cancelling its task, closes the connection, and that cancels the
    request on the host.

    Args:
        url: the endpoint, as ``ws://host:port``, ``http://host:port/v1`` or in full.
        model: None leaves the choice to the host.
        client_name: what the operator sees.

    Raises:
        PromptError: no host there, a refusal, a failure, or a connection that broke.
    """
    fields = {
        "model": model,
        "input": text,
        "instructions": instructions,
        "max_output_tokens": max_output_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    async with _connected(endpoint_url(url), client_name) as socket:
        try:
            await socket.send(json.dumps({"type": "response.create"} | given))
            async for frame in socket:
                event = _event_of(_parse(frame))
                if event is not None:
                    yield event
                if isinstance(event, Done):
                    return
        except ConnectionClosed as error:
            raise PromptError(
                "connection_lost", f"The connection broke before the answer was whole: {error}."
            ) from error
        raise PromptError("connection_lost", "The host closed before the answer was whole.")


def endpoint_url(url: str) -> str:
    """The WebSocket URL of the endpoint that ``url`` means.

    Raises:
        PromptError: ``invalid_url``.
    """
    try:
        parts = urlsplit(url if "://" in url else f"ws://{url}")
        usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable, parts = False, urlsplit("")
    if not usable:
        raise PromptError("invalid_url", f"{url!r} is no endpoint. Write {DEFAULT_URL}.")
    path = parts.path.rstrip("/")
    if path in ("", "/v1"):
        path = _RESPONSES_PATH
    return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path, parts.query, ""))


@contextlib.asynccontextmanager
async def _connected(url: str, client_name: str) -> AsyncGenerator[ClientConnection, None]:
    connection = connect(
        url,
        user_agent_header=f"{client_name}/{__version__}",
        compression=None,
        max_size=_LONGEST_FRAME_BYTES,
        close_timeout=_CLOSE_TIMEOUT_S,
        # The environment's proxies know nothing of this machine's own ports.
        proxy=None,
    )
    try:
        socket = await connection
    except InvalidStatus as error:
        raise PromptError("handshake_refused", _refusal(url, error)) from error
    except (InvalidHandshake, InvalidURI) as error:
        raise PromptError(
            "handshake_refused", f"What listens at {url} is no omlx-tui: {error}."
        ) from error
    except OSError as error:  # a TimeoutError is one
        raise PromptError(
            "no_host",
            f"No host listens at {url}. Start one with: omlx-tui (or, without a console, "
            "omlx-tui serve)",
        ) from error
    try:
        yield socket
    except BaseException:
        # Leaving early must not wait for a host that is still sending: no closing handshake.
        socket.transport.abort()
        await socket.wait_closed()
        raise
    await socket.close()


def _refusal(url: str, error: InvalidStatus) -> str:
    status = error.response.status_code
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return f"{url} refused ({status}): {json.loads(error.response.body)['error']['message']}"
    return f"What listens at {url} answered {status}; is it an omlx-tui?"


def _parse(frame: str | bytes) -> dict[str, Any]:
    try:
        document = json.loads(frame)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise PromptError("protocol_error", "The host sent something that is no event.")
    return cast("dict[str, Any]", document)


def _event_of(frame: dict[str, Any]) -> PromptEvent | None:
    """What a frame of the host means to a reader; None for the protocol's own steps."""
    try:
        match frame["type"]:
            case "omlx:model.loading":
                return Loading(int(frame["done_bytes"]), int(frame["total_bytes"]))
            case "omlx:model.waiting":
                return InLine(int(frame["position"]), str(frame["reason"]))
            case "response.output_text.delta":
                return Delta(str(frame["delta"]))
            case "response.completed" | "response.incomplete":
                return _done(frame["response"])
            case "response.failed":
                failure = frame["response"]["error"]
            case "error":
                failure = frame["error"]
            case _:
                return None
        code, message = str(failure["code"]), str(failure["message"])
    except (KeyError, TypeError, ValueError) as error:
        raise PromptError("protocol_error", f"The host's event lacks {error}.") from error
    raise PromptError(code, message)


def _done(response: dict[str, Any]) -> Done:
    usage: dict[str, Any] = response["usage"] or {}
    details: dict[str, Any] = usage.get("input_tokens_details") or {}
    return Done(
        Usage(
            int(usage.get("input_tokens", 0)),
            int(usage.get("output_tokens", 0)),
            int(details.get("cached_tokens", 0)),
        ),
        response["status"],
        response["model"],
    )
