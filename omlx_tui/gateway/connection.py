"""The shell around the protocol for one socket: reads, writes, and runs requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from omlx_tui.gateway.protocol import Effect, ResponsesProtocol, Send, Start, Stop
from omlx_tui.gateway.serving import PromptPool
from omlx_tui.gateway.settings import GatewaySettings

logger = logging.getLogger(__name__)


class PromptConnection:
    """One client. Nothing that runs for it ever waits for its socket.

    Frames go into a bounded outbox that one writer task empties. A client that reads too slowly for
    it, or stalls a single send beyond the deadline, is dropped with everything it asked for.
    """

    def __init__(
        self,
        websocket: ServerConnection,
        pool: PromptPool,
        *,
        client: str,
        settings: GatewaySettings,
    ) -> None:
        self._websocket = websocket
        self._pool = pool
        self._client = client
        self._settings = settings
        self._protocol = ResponsesProtocol(
            default_model=pool.default_model_id, limits=settings.lanes
        )
        self._outbox: asyncio.Queue[str | None] = asyncio.Queue(settings.outbox_frames)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._is_over = False

    async def serve(self) -> None:
        """Serve until the connection closes; then nothing of it runs any more."""
        self._writer = asyncio.create_task(self._write(), name=f"writer of {self._client}")
        try:
            # Clients may leave without a close frame; that is not an error.
            with contextlib.suppress(ConnectionClosed):
                async for data in self._websocket:
                    self._carry_out(self._protocol.receive(data))
        finally:
            self._end_everything()
            await asyncio.gather(*self._tasks.values(), self._writer, return_exceptions=True)

    async def shut_down(self, drain_s: float) -> None:
        """Let running requests finish for ``drain_s``, cancel the others, close with 1001."""
        self._protocol.drain()
        await self._wait_for_tasks(drain_s)
        self._carry_out(self._protocol.cancel_all())
        await self._wait_for_tasks(self._settings.send_deadline_s)
        await self._flush()
        with contextlib.suppress(TimeoutError):
            # The closing handshake has a timeout of its own, but not its first write.
            async with asyncio.timeout(self._settings.close_timeout_s):
                await self._websocket.close(CloseCode.GOING_AWAY, "the host is shutting down")
        self._websocket.transport.abort()

    async def _wait_for_tasks(self, timeout_s: float) -> None:
        if self._tasks:
            await asyncio.wait(tuple(self._tasks.values()), timeout=timeout_s)

    async def _flush(self) -> None:
        if self._writer is None:
            return
        self._enqueue(None)
        await asyncio.wait((self._writer,), timeout=self._settings.send_deadline_s)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if self._is_over:
                return
            match effect:
                case Send(text):
                    self._enqueue(text)
                case Start():
                    self._start(effect)
                case Stop(response_id):
                    _cancel_once(self._tasks[response_id])

    def _start(self, start: Start) -> None:
        task = asyncio.create_task(self._generate(start), name=f"request {start.response_id}")
        self._tasks[start.response_id] = task
        # Not a `finally` in the task: one that is cancelled before its first step never runs it.
        task.add_done_callback(lambda task: self._on_done(start.response_id, task))

    async def _generate(self, start: Start) -> None:
        answer = self._pool.generate(start.model_id, start.request, client=self._client)
        async with contextlib.aclosing(answer) as events:
            async for event in events:
                self._carry_out(self._protocol.on_event(start.response_id, event))

    def _on_done(self, response_id: str, task: asyncio.Task[None]) -> None:
        del self._tasks[response_id]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Exception):
            return  # the loop is being torn down
        if error is not None:
            logger.info("request %s of %s: %r", response_id, self._client, error)
        self._carry_out(self._protocol.on_ended(response_id, error))

    def _enqueue(self, text: str | None) -> None:
        try:
            self._outbox.put_nowait(text)
        except asyncio.QueueFull:
            self._drop(f"it left {self._outbox.qsize()} frames unread")

    async def _write(self) -> None:
        while (text := await self._outbox.get()) is not None:
            try:
                async with asyncio.timeout(self._settings.send_deadline_s):
                    await self._websocket.send(text)
            except ConnectionClosed:
                return
            except TimeoutError:
                self._drop(f"it did not read for {self._settings.send_deadline_s:g} s")
                return

    def _drop(self, reason: str) -> None:
        logger.warning("dropped %s: %s", self._client, reason)
        self._end_everything()
        self._websocket.transport.abort()

    def _end_everything(self) -> None:
        self._is_over = True
        for task in self._tasks.values():
            _cancel_once(task)
        if self._writer is not None and self._writer is not asyncio.current_task():
            self._writer.cancel()


def _cancel_once(task: asyncio.Task[None]) -> None:
    # A second cancel would interrupt the pool while it lets go of the request.
    if not task.cancelling():
        task.cancel()
