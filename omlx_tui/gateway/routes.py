"""What is served at which path, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from websockets.asyncio.server import ServerConnection

Scope = Literal["prompt", "console"]

RESPONSES_PATH = "/v1/responses"
CONSOLE_PATH = "/v1/console"


class Session(Protocol):
    """One WebSocket connection, from its handshake to its end."""

    async def serve(self) -> None:
        """Serve until the connection closes; then nothing of it runs any more."""
        ...

    async def shut_down(self, drain_s: float) -> None:
        """Let what runs finish for ``drain_s``, end the rest, close with 1001."""
        ...


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """A path that speaks WebSocket.

    Attributes:
        scope: what a caller must be let into; a token opens one scope and no other.
        open: makes the session of a new connection of the named client.
    """

    scope: Scope
    open: Callable[[ServerConnection, str], Session]
