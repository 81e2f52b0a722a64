"""The pool: models under one budget, loaded on demand, the least recently used one evicted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

from omlx_tui.engines.base import Backend, Engine
from omlx_tui.engines.device import expects_cpu
from omlx_tui.engines.errors import EngineError
from omlx_tui.engines.factory import make_backend
from omlx_tui.engines.types import GenerationRequest, SchedulerConfig
from omlx_tui.pool import events
from omlx_tui.pool.discovery import FoundModel, find_models
from omlx_tui.pool.entry import EngineEntry
from omlx_tui.pool.errors import (
    LoadCancelledError,
    ModelBusyError,
    ModelLoadError,
    ModelNotFoundError,
    ModelNotServableError,
    PoolClosedError,
    PoolError,
)
from omlx_tui.pool.eviction import lru_order
from omlx_tui.pool.lease import Lease
from omlx_tui.pool.requests import LiveRequest, RequestBoard
from omlx_tui.pool.residency import ModelResidency
from omlx_tui.pool.serving import RequestEvent, serve
from omlx_tui.pool.snapshot import LoadPlan, ModelState, PoolSnapshot
from omlx_tui.pool.views import freeze_plan, freeze_pool

# Of the weights, on top of them, for the KV cache of a model that generates tokens.
KV_HEADROOM_SHARE = 0.25


class EnginePool(ModelResidency):
    """Serves many models under one memory budget.

    Used on one event loop; only ``discover_models`` and the constructor may be called before it
    runs. Decisions are taken synchronously over the entries' present state; whatever waits reads
    the state again afterwards.

    Args:
        max_model_memory: the budget in bytes, for weights and KV headroom of all resident models.
        scheduler_config: how the MLX thread shares its time.
        backend: what runs the models; by default the real one, which starts with the first load.
        clock: seconds, monotonic; ``wall_clock``: seconds since the epoch.
    """

    def __init__(
        self,
        max_model_memory: int,
        scheduler_config: SchedulerConfig | None = None,
        *,
        backend: Backend | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = scheduler_config or SchedulerConfig()
        super().__init__(
            max_model_memory,
            backend or make_backend(self._config),
            clock=clock,
            wall_clock=wall_clock,
        )
        self._requests = RequestBoard(clock)
        self._snapshots_taken = 0

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
        raise_to_fp32 = self._config.raise_to_fp32_on_cpu and expects_cpu()
        found = find_models(Path(path), raise_to_fp32=raise_to_fp32)
        for model in found:
            self._entries.setdefault(model.model_id, _entry_of(model))
        self._emit(
            events.ModelsDiscovered,
            found=len(found),
            servable=sum(not model.problem for model in found),
            root=str(path),
        )
        for model_id in pinned_models:
            self.pin(model_id)
        return [self._entries[model.model_id] for model in found]

    def pin(self, model_id: str) -> None:
        """Never evict this model; it stays until the operator unloads it."""
        self._set_pinned(self._known_entry(model_id), is_pinned=True)

    def unpin(self, model_id: str) -> None:
        self._set_pinned(self._known_entry(model_id), is_pinned=False)

    # Using engines

    async def get_engine(self, model_id: str) -> Engine:
        """The resident engine of a model, loaded now if need be.

        It is safe from eviction until this returns; to keep it so while it is used, take a
        ``lease``. Raises at once when nothing can be evicted.

        Raises:
            ModelNotFoundError, ModelNotServableError: it can't be served at all.
            InsufficientMemoryError: there is no room and none can be made; nothing was evicted.
            ModelLoadError, LoadCancelledError, PoolClosedError: the load did not end well.
        """
        async with self.lease(model_id) as engine:
            return engine

    @asynccontextmanager
    async def lease(self, model_id: str) -> AsyncGenerator[Engine]:
        """Hold a model resident while the block runs. Raises what ``get_engine`` raises."""
        with self.hold(model_id) as lease:
            async for _ in lease.loading():
                pass
            yield lease.engine

    def hold(self, model_id: str) -> Lease:
        """Claim a model before it is resident; ``Lease.loading`` makes it so.

        Raises:
            ModelNotFoundError, ModelNotServableError, PoolClosedError.
        """
        entry = self._known_entry(model_id)
        if self._is_closed:
            raise PoolClosedError
        if not entry.is_servable:
            raise ModelNotServableError(model_id, entry.problem)
        entry.leases += 1
        if entry.state is ModelState.DRAINING:
            self._spare(entry)
        return Lease(entry, self._make_resident, self._give_back)

    async def generate(
        self, model_id: str, request: GenerationRequest, *, client: str
    ) -> AsyncGenerator[RequestEvent]:
        """Serve one request; close the generator to abort it.

        Ends after exactly one ``Finished``, unless it raises what ``get_engine`` or the engine's
        ``prepare`` raise; before ``Accepted`` nothing has been started for it.
        """
        record = self._requests.open(request.request_id, model_id, client)
        self._emit(
            events.RequestStarted,
            request_id=request.request_id,
            model_id=model_id,
            client=client,
        )
        try:
            with self.hold(model_id) as lease:
                async with aclosing(serve(lease, request)) as request_events:
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
        """Make a model resident without using it. Raises what ``get_engine`` raises."""
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
            memory=self._backend.memory(),
            entries=self._entries,
            board=self._requests,
            evictions=self._evictions,
            last_event_seq=self.events.last_seq,
        )

    async def close(self) -> None:
        """End every request, load and engine, and the backend's threads. Idempotent."""
        self._is_closed = True
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

    def _known_entry(self, model_id: str) -> EngineEntry:
        entry = self._entries.get(model_id)
        if entry is None:
            raise ModelNotFoundError(model_id, self._entries)
        return entry

    def _set_pinned(self, entry: EngineEntry, *, is_pinned: bool) -> None:
        if entry.is_pinned == is_pinned:
            return
        entry.is_pinned = is_pinned
        self._emit(events.PinChanged, model_id=entry.model_id, is_pinned=is_pinned)
        if is_pinned and entry.state is ModelState.DRAINING:
            self._spare(entry)

    def _close_request(self, record: LiveRequest, refusal: str = "") -> None:
        self._requests.close(record)
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


def _entry_of(model: FoundModel) -> EngineEntry:
    return EngineEntry(
        model_id=model.model_id,
        path=model.path,
        model_type=model.model_type,
        weights_bytes=model.weights_bytes,
        headroom_share=KV_HEADROOM_SHARE,
        is_servable=not model.problem,
        problem=model.problem,
    )
