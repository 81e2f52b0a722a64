"""The endpoint: one listening socket, its connections, and their end."""

from __future__ import annotations

import asyncio
import errno
import http
import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State

from omlx_tui.gateway.connection import PromptConnection
from omlx_tui.gateway.errors import EndpointInUseError, EndpointUnusableError, UnsafeBindError
from omlx_tui.gateway.guards import client_name, is_loopback, refusal_of_host, refusal_of_origin
from omlx_tui.gateway.probes import Answer, Probes, failure
from omlx_tui.gateway.routes import RESPONSES_PATH, Session, SocketRoute
from omlx_tui.gateway.serving import PromptPool
from omlx_tui.gateway.settings import GatewaySettings

logger = logging.getLogger(__name__)


class Gateway:
    """Serves a pool to clients, from ``start`` to ``close``, on the loop that called ``start``.

    Args:
        pool: who answers.
        host: a loopback address or name.
        port: 0 lets the system choose; ``port`` tells which one it was.
        routes: more paths that speak WebSocket.
        probes: answers plain GETs; by default with what the pool itself says.
    """

    def __init__(
        self,
        pool: PromptPool,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        settings: GatewaySettings | None = None,
        routes: Mapping[str, SocketRoute] | None = None,
        probes: Probes | None = None,
    ) -> None:
        self._pool = pool
        self._host = host
        self._asked_port = port
        self._settings = settings or GatewaySettings()
        self._routes = {RESPONSES_PATH: SocketRoute("prompt", self._open_prompts), **(routes or {})}
        self._probes = probes or Probes(pool)
        self._server: Server | None = None
        self._is_closing = False
        self._port = 0
        self._sockets: set[ServerConnection] = set()
        self._sessions: set[Session] = set()

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        """The port that is listened on; 0 before ``start``."""
        return self._port

    @property
    def url(self) -> str:
        """Where prompts are sent: ``ws://127.0.0.1:8000/v1/responses``."""
        return f"ws://{self._netloc}{RESPONSES_PATH}"

    @property
    def base_url(self) -> str:
        """What OpenAI's clients take as ``base_url``: ``http://127.0.0.1:8000/v1``."""
        return f"http://{self._netloc}/v1"

    @property
    def connection_count(self) -> int:
        return len(self._sessions)

    async def start(self) -> None:
        """Listen.

        Raises:
            UnsafeBindError: the address is not a loopback one.
            EndpointInUseError: somebody listens there already.
            EndpointUnusableError: the system refused for another reason.
        """
        if self._server is not None:
            raise RuntimeError("a gateway starts once")
        self._is_closing = False
        if not is_loopback(self._host):
            raise UnsafeBindError(self._host)
        try:
            self._server = await self._listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise EndpointInUseError(self._host, self._asked_port) from error
            raise EndpointUnusableError(self._host, self._asked_port, error) from error
        except OverflowError as error:  # a port that no TCP has
            raise EndpointUnusableError(self._host, self._asked_port, error) from error
        self._port = next(iter(self._server.sockets)).getsockname()[1]
        logger.info("listening on %s", self.url)

    async def close(self, *, drain_s: float = 5.0) -> None:
        """Refuse new requests, let running ones finish for ``drain_s``, then end everything.

        Each request still gets its terminal event and each connection a close code 1001. When this
        returns, no task of the endpoint runs. Closing twice, or before ``start``, does nothing.
        """
        server, self._server = self._server, None
        if server is None:
            return
        self._is_closing = True
        server.close(close_connections=False)
        await asyncio.gather(*(session.shut_down(drain_s) for session in tuple(self._sessions)))
        for socket in tuple(self._sockets):
            # Whoever has not said what he wants by now would hold up the end until he does.
            if socket.state is State.CONNECTING:
                socket.transport.abort()
        await server.wait_closed()
        logger.info("stopped listening on %s", self.url)

    @property
    def _netloc(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    async def _listen(self) -> Server:
        settings = self._settings
        return await serve(
            self._handle,
            self._host,
            self._asked_port,
            process_request=self._process_request,
            create_connection=_tracked_in(self._sockets),
            compression=None,  # costs 70 KiB a connection and a quarter more CPU
            max_size=settings.max_message_bytes,
            max_queue=settings.max_unread_frames,
            ping_interval=settings.ping_interval_s,
            ping_timeout=settings.ping_timeout_s,
            open_timeout=settings.open_timeout_s,
            close_timeout=settings.close_timeout_s,
            server_header="omlx-tui",
        )

    async def _handle(self, websocket: ServerConnection) -> None:
        if self._is_closing:
            # Its handshake ended just when the closing of the others had begun.
            await websocket.close(CloseCode.GOING_AWAY)
            return
        request = websocket.request
        if request is None:
            raise RuntimeError("a connection is handled after its handshake")
        user_agents = request.headers.get_all("User-Agent")
        client = client_name(
            user_agents[0] if user_agents else None, websocket.remote_address or ()
        )
        session = self._routes[_path_of(request)].open(websocket, client)
        self._sessions.add(session)
        try:
            await session.serve()
        finally:
            self._sessions.discard(session)

    def _open_prompts(self, websocket: ServerConnection, client: str) -> Session:
        return PromptConnection(websocket, self._pool, client=client, settings=self._settings)

    async def _process_request(self, socket: ServerConnection, request: Request) -> Response | None:
        answer = await self._answer(request)
        if answer is None:
            return None
        response = socket.respond(answer.status, answer.text())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = answer.content_type
        if answer.status is http.HTTPStatus.UPGRADE_REQUIRED:
            response.headers["Upgrade"] = "websocket"
        return response

    async def _answer(self, request: Request) -> Answer | None:
        """What to say instead of opening a WebSocket; None to open it."""
        headers = request.headers
        refusal = refusal_of_origin(
            headers.get_all("Origin"), self._settings.allowed_origins
        ) or refusal_of_host(headers.get_all("Host"), self._host)
        if refusal is not None:
            return failure(http.HTTPStatus.FORBIDDEN, "forbidden", refusal)
        path = _path_of(request)
        if path not in self._routes:
            return await self._probes.answer(path)
        if not headers.get_all("Upgrade"):
            return failure(
                http.HTTPStatus.UPGRADE_REQUIRED,
                "upgrade_required",
                "This path speaks WebSocket: use a client's WebSocket mode.",
            )
        return None


def _path_of(request: Request) -> str:
    return urlsplit(request.path).path.rstrip("/")


def _tracked_in(sockets: set[ServerConnection]) -> type[ServerConnection]:
    """A connection class that keeps ``sockets`` to what is open, handshaking ones included.

    The server itself knows only those that are through with their handshake.
    """

    class TrackedConnection(ServerConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            sockets.add(self)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            sockets.discard(self)

    return TrackedConnection
