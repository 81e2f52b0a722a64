"""A host in a thread of its own, and the console's view of it.

Textual's writer blocks its event loop when a terminal stops reading; whatever serves must not
live there. The two meet only in frozen frames and in commands handed over to the host's loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import structlog

from omlx_tui.console.source import Frame
from omlx_tui.host import EngineHost
from omlx_tui.pool import LoadPlan

T = TypeVar("T")
_log = structlog.get_logger(__name__)

# How often the host takes a picture of itself; the console draws at its own rate.
_FRAME_INTERVAL_S = 0.25


class HostThread:
    """Runs an ``EngineHost`` on its own loop and thread; a ``Source`` for the console."""

    def __init__(self, host: EngineHost) -> None:
        self._host = host
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._frame: Frame | None = None
        self._started: Future[None] = Future()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="host")

    def start(self) -> None:
        """Start the host and wait until it serves. Raises what ``EngineHost.start`` raises."""
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the host and its thread; safe to call twice and after a failed start."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def has_live_requests(self) -> bool:
        return self._frame is not None and bool(self._frame.snapshot.requests)

    # Source

    def frame(self) -> Frame | None:
        return self._frame

    async def load(self, model_id: str) -> None:
        await self._ask(self._host.pool.load(model_id))

    async def unload(self, model_id: str, *, force: bool) -> int:
        return await self._ask(self._host.pool.unload(model_id, force=force))

    async def set_pinned(self, model_id: str, *, is_pinned: bool) -> None:
        await self._ask(self._host.set_pinned(model_id, is_pinned=is_pinned))

    async def plan_load(self, model_id: str) -> LoadPlan:
        async def plan_load() -> LoadPlan:
            return self._host.pool.plan_load(model_id)

        return await self._ask(plan_load())

    async def rescan(self) -> None:
        await self._ask(self._host.pool.rescan())

    async def set_demo(self, *, is_running: bool) -> None:
        await self._ask(self._host.set_demo(is_running=is_running))

    async def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the host's loop and wait for it here."""
        if self._loop is None or not self._thread.is_alive():
            work.close()
            raise RuntimeError(self._failure or "The host has ended.")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - whoever waits hears of it, whatever it is
            if not self._started.done():
                self._started.set_exception(error)
            else:
                _log.exception("host_died")
                self._failure = f"The host died: {error or type(error).__name__}"

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            await self._host.start()
            self._take_frame()
            self._started.set_result(None)
            await self._take_frames_until(self._stop)
        finally:
            await self._host.close()

    async def _take_frames_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._take_frame()
            try:
                await asyncio.wait_for(stop.wait(), _FRAME_INTERVAL_S)
            except TimeoutError:
                continue

    def _take_frame(self) -> None:
        pool = self._host.pool
        latest = self._frame
        if latest is not None and latest.snapshot.last_event_seq == pool.events.last_seq:
            events = latest.events
        else:
            events = pool.events.after(0)
        self._frame = Frame(
            snapshot=pool.snapshot(),
            events=events,
            host_name=self._host.host_name,
            endpoint=self._host.gateway.url,
            uptime_s=self._host.uptime_s,
            is_demo_running=self._host.is_demo_running,
        )
