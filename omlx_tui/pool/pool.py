"""The pool: models under one budget, loaded on demand, the least recently used one evicted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from pathlib import Path

from omlx_tui.engines.base import Backend
from omlx_tui.engines.device import expects_cpu
from omlx_tui.engines.errors import EngineError
from omlx_tui.engines.factory import make_backend
from omlx_tui.engines.types import GenerationRequest, MemoryReading, SchedulerConfig
from omlx_tui.pool import events
from omlx_tui.pool.catalogue import Catalogue
from omlx_tui.pool.discovery import Discovery
from omlx_tui.pool.entry import EngineEntry
from omlx_tui.pool.errors import (
    LoadCancelledError,
    ModelBusyError,
    ModelLoadError,
    PoolClosedError,
    PoolError,
)
from omlx_tui.pool.eviction import lru_order
from omlx_tui.pool.options import PoolOptions
from omlx_tui.pool.relief import PressureRelief
from omlx_tui.pool.requests import LiveRequest
from omlx_tui.pool.serving import RequestEvent, serve
from omlx_tui.pool.snapshot import LoadPlan, ModelState, PoolSnapshot
from omlx_tui.pool.views import freeze_plan, freeze_pool
from omlx_tui.pool.watching import watch


class EnginePool(PressureRelief):
    """Serves many models under one memory budget.

    Used on one event loop; only ``discover_models`` and the constructor may be called before it
    runs. Decisions are taken synchronously over the entries' present state; whatever waits reads
    the state again afterwards.

    Args:
        max_model_memory: the budget in bytes, for weights and KV headroom of all resident models.
        scheduler_config: how the MLX thread shares its time.
        options: headroom, waiting, deadlines, and what was set for single models.
        backend: what runs the models; by default the real one, which starts with the first load.
        clock: seconds, monotonic; ``wall_clock``: seconds since the epoch.
    """

    def __init__(
        self,
        max_model_memory: int,
        scheduler_config: SchedulerConfig | None = None,
        *,
        options: PoolOptions | None = None,
        backend: Backend | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = scheduler_config or SchedulerConfig()
        super().__init__(
            max_model_memory,
            backend or make_backend(self._config),
            options or PoolOptions(),
            clock=clock,
            wall_clock=wall_clock,
        )
        self._catalogue = Catalogue(
            self._options,
            raise_to_fp32=lambda: self._config.raise_to_fp32_on_cpu and expects_cpu(),
        )
        self._snapshots_taken = 0
        self._backend.watch_loss(self._on_engines_lost)

    # Discovery

    def discover_models(
        self, path: str | Path, pinned_models: Iterable[str] = ()
    ) -> list[EngineEntry]:
        """Add the models below a folder; those that can't be served come with their reason.

        A model that is known already keeps its entry. Returns the entries found there.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no such folder.
            ModelNotFoundError: a name in ``pinned_models`` is no model of the pool.
        """
        root = self._catalogue.add_root(Path(path))
        discovery = self._catalogue.look()
        self._catalogue.take_over(discovery, self._entries)
        found = [m for m in discovery.models.values() if m.path.is_relative_to(root)]
        self._emit(
            events.ModelsDiscovered,
            found=len(found),
            servable=sum(not model.problem for model in found),
            root=str(path),
        )
        for model_id in pinned_models:
            self.pin(model_id)
        return [self._entries[model.model_id] for model in found]

    async def rescan(self) -> None:
        """Look into all folders again and follow what has changed there."""
        self._follow(await asyncio.to_thread(self._catalogue.look))

    async def watch_folders(self, *, interval_s: float = 2.0) -> None:
        """Follow changes in the folders until cancelled."""

        def follow(discovery: Discovery, _: object) -> None:
            self._follow(discovery)

        await watch(
            self._catalogue.look,
            follow,
            known=lambda: self._catalogue.seen,
            interval_seconds=interval_s,
        )

    def _follow(self, discovery: Discovery) -> None:
        known_warnings = self._catalogue.seen.warnings
        changes = self._catalogue.take_over(discovery, self._entries)
        if changes:
            self._emit(
                events.ModelsChanged,
                added=tuple(model.model_id for model in changes.added),
                removed=tuple(model.model_id for model in changes.removed),
                changed=tuple(model.model_id for model in changes.changed),
            )
            self._announce_change()
        for warning in discovery.warnings:
            if warning not in known_warnings:
                self._emit(events.FolderUnreadable, path=str(warning.path), reason=warning.reason)

    def pin(self, model_id: str) -> None:
        """Never evict this model; it stays until the operator unloads it."""
        self._set_pinned(self._known_entry(model_id), is_pinned=True)

    def pin_when_found(self, model_id: str) -> None:
        """Pin a model now, or when its folder appears."""
        if model_id in self._entries:
            self.pin(model_id)
        else:
            self._catalogue.remember_pin(model_id)

    def unpin(self, model_id: str) -> None:
        self._set_pinned(self._known_entry(model_id), is_pinned=False)

    # Serving

    async def generate(
        self, model_id: str, request: GenerationRequest, *, client: str
    ) -> AsyncGenerator[RequestEvent]:
        """Serve one request; close the generator to abort it.

        Ends after exactly one ``Finished``, unless it raises what ``get_engine`` or the engine's
        ``prepare`` raise; before ``Accepted`` nothing has been started for it.
        """
        model_id = self._options.aliases.get(model_id, model_id)
        record = self._requests.open(request.request_id, model_id, client)
        self._emit(
            events.RequestStarted,
            request_id=request.request_id,
            model_id=model_id,
            client=client,
        )
        try:
            with self.hold(model_id, timeout=self._options.wait_timeout_s) as lease:
                async with aclosing(
                    serve(lease, request, max_queued=self._options.max_waiting)
                ) as request_events:
                    async for event in request_events:
                        self._requests.note(record, event)
                        yield event
        except (PoolError, EngineError) as error:
            self._close_request(record, refusal=str(error))
            raise
        except BaseException:
            self._close_request(record)
            raise
        self._close_request(record)

    # The operator's commands

    async def load(self, model_id: str) -> None:
        """Make a model resident without using it, also one whose load has just failed.

        Raises what ``get_engine`` raises.
        """
        self._known_entry(model_id).retry_at_s = 0.0
        await self.get_engine(model_id)

    async def unload(self, model_id: str, *, force: bool = False) -> int:
        """Take a model out of memory, pinned or not; a load in flight is cancelled.

        Returns the bytes MLX gave back.

        Raises:
            ModelNotFoundError: there is no such model.
            ModelBusyError: it is serving, and ``force`` was not given. With it, its requests end
                as aborted.
            ModelLoadError: the engine did not go; its bytes stay counted.
        """
        entry = self._known_entry(model_id)
        while entry.state in (ModelState.LOADING, ModelState.UNLOADING):
            self._cancel_load(entry, LoadCancelledError(model_id, "the operator ended it"))
            await self._next_change()
        if entry.engine is None:
            return 0
        if not force and (entry.leases or entry.is_active()):
            raise ModelBusyError(model_id, max(entry.leases, 1))
        return await self._unload_engine(entry, reason="by the operator")

    async def drain(self, model_id: str) -> int:
        """Unload a model when its running requests have ended, new ones line up meanwhile.

        After ``PoolOptions.drain_timeout_s`` what still runs is aborted. Returns the bytes freed.

        Raises:
            ModelNotFoundError: there is no such model.
            ModelLoadError: the engine did not go; its bytes stay counted.
        """
        entry = self._known_entry(model_id)
        if entry.state not in (ModelState.READY, ModelState.DRAINING):
            return await self.unload(model_id, force=True)
        # Goes on without the caller, as an unload does.
        return await asyncio.shield(self._spawn(self._drain(entry)))

    async def _drain(self, entry: EngineEntry) -> int:
        entry.draining_for = None  # also one that leaves for a load: the operator's word stands
        self._set_state(entry, ModelState.DRAINING)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_timeout_s):
                while _still_drains(entry) and not entry.is_idle():
                    await self._change_or_moment()
        if not _still_drains(entry):
            return 0  # pinned, unloaded or lost meanwhile: somebody has said otherwise
        return await self._unload_engine(entry, reason="drained by the operator")

    def set_ttl(self, model_id: str, ttl_s: float) -> None:
        """Unload a model so long after its last request; 0 for never."""
        self._known_entry(model_id).ttl_s = ttl_s

    async def expire_idle(self) -> None:
        """Unload whoever's TTL has run out, or whom a lowered budget has no room for any more.

        Called from time to time.
        """
        await self._trim_to_budget()
        for entry in lru_order(self._entries.values()):
            if entry.ttl_left_s(self._clock()) == 0:
                await self._unload_engine(entry, reason=f"idle for {entry.ttl_s:.0f} s")

    async def set_budget(self, budget_bytes: int) -> None:
        """Change the budget; if it is lowered, idle models leave until it holds.

        Models in use stay, and over the budget nothing is loaded.
        """
        if budget_bytes <= 0:
            raise ValueError(f"a budget must be above 0, not {budget_bytes}")
        self.max_model_memory = budget_bytes
        self._emit(events.BudgetChanged, budget_bytes=budget_bytes)
        self._recheck_claims()
        self._announce_change()
        await self._trim_to_budget()

    async def _trim_to_budget(self) -> None:
        while self._current_model_memory > self.max_model_memory:
            victim = self._find_lru_victim()
            if victim is None:
                return
            await self._unload_engine(victim, reason="over the budget")

    def plan_load(self, model_id: str) -> LoadPlan:
        """What loading a model now would evict, in which order, and whether it would fit.

        Raises:
            ModelNotFoundError: there is no such model.
        """
        entry = self._known_entry(model_id)
        return freeze_plan(entry, self._entries.values(), self.max_model_memory)

    def default_model_id(self) -> str | None:
        """The model for a request that names none: the last one used, else the first there is."""
        servable = [entry for entry in self._entries.values() if entry.is_servable]
        resident = [entry for entry in servable if entry.state is ModelState.READY]
        if resident:
            return lru_order(resident)[-1].model_id
        return min((entry.model_id for entry in servable), default=None)

    def memory(self) -> MemoryReading:
        """MLX's own figures, as its thread last saw them."""
        return self._backend.memory()

    def snapshot(self) -> PoolSnapshot:
        """Everything at this instant, frozen."""
        self._snapshots_taken += 1
        # KV caches grow between changes of state.
        self._peak_held_bytes = max(self._peak_held_bytes, self._current_model_memory)
        return freeze_pool(
            seq=self._snapshots_taken,
            taken_s=self._clock(),
            wall_s=self._wall_clock(),
            budget_bytes=self.max_model_memory,
            held_bytes=self._current_model_memory,
            peak_held_bytes=self._peak_held_bytes,
            memory=self.memory(),
            entries=self._entries,
            board=self._requests,
            evictions=self._evictions,
            last_event_seq=self.events.last_seq,
            problem=self._engine_problem,
        )

    async def close(self) -> None:
        """End every request, load and engine, and the backend's threads. Idempotent."""
        self._is_closed = True
        self._announce_change()
        for entry in self._entries.values():
            self._cancel_load(entry, PoolClosedError())
        await self._until(lambda: not any(entry.attempt for entry in self._entries.values()))
        for entry in lru_order(self._entries.values()):
            if entry.state in (ModelState.READY, ModelState.DRAINING):
                # One that does not go is dropped with the backend.
                with suppress(ModelLoadError):
                    await self._unload_engine(entry, reason="the pool is closing")
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._backend.close()
        for entry in self._entries.values():
            entry.engine = None

    # Small parts

    def _set_pinned(self, entry: EngineEntry, *, is_pinned: bool) -> None:
        if entry.is_pinned == is_pinned:
            return
        entry.is_pinned = is_pinned
        self._emit(events.PinChanged, model_id=entry.model_id, is_pinned=is_pinned)
        if is_pinned and entry.state is ModelState.DRAINING:
            self._spare(entry)
        self._announce_change()

    def _close_request(self, record: LiveRequest, refusal: str = "") -> None:
        self._requests.close(record)
        self._announce_change()
        facts = {
            "request_id": record.request_id,
            "model_id": record.model_id,
            "client": record.client,
        }
        if refusal:
            self._emit(events.RequestRefused, **facts, reason=refusal)
            return
        self._emit(
            events.RequestFinished,
            **facts,
            reason=record.reason,
            generated_tokens=record.generated_tokens,
            took_s=self._clock() - record.started_s,
        )


def _still_drains(entry: EngineEntry) -> bool:
    """Read anew after each wait."""
    return entry.state is ModelState.DRAINING
