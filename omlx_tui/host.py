"""The host: pool and endpoint, started and stopped in order, on one event loop."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable

import structlog

from omlx_tui.demo import DemoLoad
from omlx_tui.engines.device import Device, read_device
from omlx_tui.gateway import Gateway
from omlx_tui.pool import EnginePool, ModelNotServableError, PoolError
from omlx_tui.pool.events import PoolEvent
from omlx_tui.settings import HostSettings
from omlx_tui.sizes import format_bytes

_log = structlog.get_logger(__name__)


class EngineHost:
    """Everything that serves. The same under a console, in a thread, and headless.

    ``start`` and ``close`` run on the loop that everything then lives on.
    """

    def __init__(
        self,
        settings: HostSettings,
        *,
        read_device: Callable[[], Device] = read_device,
    ) -> None:
        self._settings = settings
        self._read_device = read_device
        self._pool: EnginePool | None = None
        self._gateway: Gateway | None = None
        self._demo: DemoLoad | None = None
        self._started_s = time.monotonic()
        self.host_name = platform.node().split(".")[0] or "localhost"

    @property
    def pool(self) -> EnginePool:
        if self._pool is None:
            raise RuntimeError("the host has not been started")
        return self._pool

    @property
    def gateway(self) -> Gateway:
        if self._gateway is None:
            raise RuntimeError("the host has not been started")
        return self._gateway

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._started_s

    @property
    def is_demo_running(self) -> bool:
        return self._demo is not None and self._demo.is_running

    async def start(self) -> None:
        """Find the models, then listen; on an error nothing is left running.

        Raises:
            OSError: a models folder is missing.
            ModelNotFoundError: a pinned model is not there.
            GatewayError: the endpoint can't listen there.
            DeviceError: MLX has no backend and the budget depends on it.
        """
        budget_bytes = await asyncio.to_thread(self._resolve_budget)
        pool = EnginePool(budget_bytes, self._settings.scheduler)
        pool.events.subscribe(_log_event)
        for root in self._settings.roots:
            pool.discover_models(root)
        for model_id in self._settings.pin:
            pool.pin(model_id)
        gateway = Gateway(pool, self._settings.host, self._settings.port)
        try:
            await gateway.start()
        except BaseException:
            await pool.close()
            raise
        self._pool, self._gateway = pool, gateway
        self._started_s = time.monotonic()
        _log.info("host_started", endpoint=gateway.url, budget=format_bytes(budget_bytes))
        if self._settings.demo:
            await self._start_demo_if_possible()

    async def set_demo(self, *, is_running: bool) -> None:
        """Start or stop the synthetic load; does nothing if it is so already.

        Raises:
            ModelNotServableError: there is no model that it could ask.
        """
        if is_running == self.is_demo_running:
            return
        if self._demo is not None:
            await self._demo.stop()
            self._demo = None
        if is_running:
            models = [model.model_id for model in self.pool.snapshot().models if model.is_servable]
            if not models:
                raise ModelNotServableError("The demo", "there is no model that it could ask.")
            self._demo = DemoLoad(self.gateway.url, sorted(models))
            await self._demo.start()

    async def _start_demo_if_possible(self) -> None:
        """A demo without models is nothing that should keep a host from starting."""
        try:
            await self.set_demo(is_running=True)
        except PoolError as error:
            _log.warning("no_demo", reason=str(error))

    async def close(self) -> None:
        """Let running requests finish for a while, then end everything. Idempotent."""
        if self._demo is not None:
            await self._demo.stop()
            self._demo = None
        if self._gateway is not None:
            await self._gateway.close(drain_s=self._settings.drain_s)
        if self._pool is not None:
            await self._pool.close()
        _log.info("host_closed")

    def _resolve_budget(self) -> int:
        """In bytes; asks the device (and so imports MLX) only if the answer depends on it."""
        budget = self._settings.budget
        if budget.size_bytes is not None:
            return budget.size_bytes
        device = self._read_device()
        return budget.resolve(
            capacity_bytes=device.capacity_bytes, auto_bytes=device.default_budget_bytes
        )


def _log_event(event: PoolEvent) -> None:
    if event.is_problem:
        _log.warning(event.kind, what=event.describe(), seq=event.seq)
    else:
        _log.info(event.kind, what=event.describe(), seq=event.seq)
