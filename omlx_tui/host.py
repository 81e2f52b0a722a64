"""The host: pool and endpoint, started and stopped in order, on one event loop."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterable
from functools import partial

import psutil
import structlog

from omlx_tui import locations
from omlx_tui.demo import DemoLoad
from omlx_tui.engines.device import Device, read_device
from omlx_tui.gateway import Gateway
from omlx_tui.journal import Journal
from omlx_tui.pool import EnginePool, ModelNotServableError, PoolError
from omlx_tui.pool.enforcer import EnforcerLimits, ProcessMemoryEnforcer
from omlx_tui.pool.events import PoolEvent
from omlx_tui.pool.process import ProcessMeter, default_process_limit_bytes
from omlx_tui.settings import HostSettings, LoadedSettings
from omlx_tui.sizes import format_bytes
from omlx_tui.state import StateFile

_log = structlog.get_logger(__name__)

_CHORES_INTERVAL_S = 1.0


class EngineHost:
    """Everything that serves. The same under a console, in a thread, and headless.

    ``start`` and ``close`` run on the loop that everything then lives on.

    Args:
        journal: hears every event of the pool; closed with the host.
        state: where the operator's changes are remembered.
        extra_pins: what the operator pinned earlier; missing models are no error.
    """

    def __init__(
        self,
        settings: HostSettings,
        *,
        journal: Journal | None = None,
        state: StateFile | None = None,
        extra_pins: Iterable[str] = (),
        read_device: Callable[[], Device] = read_device,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._state = state
        self._extra_pins = tuple(extra_pins)
        self._read_device = read_device
        self._pool: EnginePool | None = None
        self._gateway: Gateway | None = None
        self._demo: DemoLoad | None = None
        self._chores: list[asyncio.Task[None]] = []
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
        pool = EnginePool(
            budget_bytes, self._settings.scheduler_config(), options=self._settings.pool_options()
        )
        pool.events.subscribe(_log_event)
        if self._journal is not None:
            pool.events.subscribe(self._journal)
        for root in self._settings.roots:
            pool.discover_models(root)
        for model_id in self._settings.pins:
            pool.pin(model_id)
        for model_id in self._extra_pins:
            pool.pin_when_found(model_id)
        gateway = Gateway(pool, self._settings.host, self._settings.port)
        try:
            await gateway.start()
        except BaseException:
            await pool.close()
            raise
        self._pool, self._gateway = pool, gateway
        self._started_s = time.monotonic()
        _log.info("host_started", endpoint=gateway.url, budget=format_bytes(budget_bytes))
        self._begin_chores(pool)
        if self._settings.demo:
            await self._start_demo_if_possible()

    async def set_pinned(self, model_id: str, *, is_pinned: bool) -> None:
        """Pin or unpin, and remember it for the next start.

        Raises:
            ModelNotFoundError: there is no such model.
            OSError: it is done, but could not be remembered.
        """
        (self.pool.pin if is_pinned else self.pool.unpin)(model_id)
        if self._state is not None:
            await asyncio.to_thread(
                self._state.change, lambda state: state.with_pin(model_id, is_pinned=is_pinned)
            )

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
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        self._chores.clear()
        if self._demo is not None:
            await self._demo.stop()
            self._demo = None
        if self._gateway is not None:
            await self._gateway.close(drain_s=self._settings.drain_s)
        if self._pool is not None:
            await self._pool.close()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)
        _log.info("host_closed")

    def _begin_chores(self, pool: EnginePool) -> None:
        """What goes on beside the requests until the host closes."""
        chores = [self._keep_house(pool), pool.watch_folders()]
        chores += [_preload(pool, model_id) for model_id in self._settings.preload]
        for chore in chores:
            task = asyncio.create_task(chore)
            task.add_done_callback(_log_failure)
            self._chores.append(task)

    async def _keep_house(self, pool: EnginePool) -> None:
        """Expire idle models and keep the process below its limit, once a second."""
        limits = self._limits()
        enforcer = ProcessMemoryEnforcer(
            pool,
            limits,
            ProcessMeter(pool.memory).read,
            partial(pool.note_pressure, limit_bytes=limits.process_limit_bytes),
        )
        while True:
            await asyncio.sleep(_CHORES_INTERVAL_S)
            try:
                await pool.expire_idle()
                await enforcer.check()
            except Exception:  # noqa: BLE001 - the next round may go better
                _log.exception("housekeeping_failed")

    def _limits(self) -> EnforcerLimits:
        total_bytes = psutil.virtual_memory().total
        settings = self._settings
        return EnforcerLimits(
            process_limit_bytes=settings.process_memory_limit.resolve(
                capacity_bytes=total_bytes, auto_bytes=default_process_limit_bytes(total_bytes)
            ),
            soft_share=settings.soft_mark,
            hard_share=settings.hard_mark,
            allow_abort=settings.allow_abort,
        )

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


def assemble_host(loaded: LoadedSettings) -> EngineHost:
    """A host with all that it keeps on disk: settings, the operator's changes, the journal."""
    state_file = StateFile(locations.state_file())
    state = state_file.read().yielding_to(loaded.flags)
    settings = state.over(loaded.settings)
    journal = None
    if settings.journal_path is not None:
        journal = Journal(
            settings.journal_path, int(settings.journal_max_size), settings.journal_backups
        )
    return EngineHost(
        settings,
        journal=journal,
        state=state_file,
        extra_pins=state.extra_pins(loaded.settings),
    )


async def _preload(pool: EnginePool, model_id: str) -> None:
    try:
        await pool.load(model_id)
    except PoolError as error:
        _log.warning("not_preloaded", model=model_id, reason=str(error))


def _log_failure(chore: asyncio.Task[None]) -> None:
    if not chore.cancelled() and (error := chore.exception()) is not None:
        _log.error("chore_failed", reason=repr(error))
