"""How models come into memory and leave it: reservations, victims, loads and unloads.

The half of the pool that changes states. Decisions are synchronous functions over the entries'
present state; whatever has waited reads the state again before it decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from omlx_tui.engines.base import Backend, Engine
from omlx_tui.engines.types import LoadProgress, ModelSpec
from omlx_tui.pool import events
from omlx_tui.pool.entry import EngineEntry, LoadAttempt
from omlx_tui.pool.errors import (
    InsufficientMemoryError,
    LoadCancelledError,
    ModelLoadError,
    PoolClosedError,
    PoolError,
)
from omlx_tui.pool.eviction import find_lru_victim, has_physical_room, lru_order, plan_eviction
from omlx_tui.pool.snapshot import ModelState

T = TypeVar("T")


class ModelResidency:
    """The entries, the budget, and the one place where a state changes.

    Base of ``EnginePool``, which adds what clients and the operator ask for. Used on one loop.
    """

    def __init__(
        self,
        max_model_memory: int,
        backend: Backend,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if max_model_memory <= 0:
            raise ValueError(f"max_model_memory must be above 0, not {max_model_memory}")
        self.max_model_memory = max_model_memory
        self.events = events.EventLog()
        self._backend = backend
        self._clock = clock
        self._wall_clock = wall_clock
        self._entries: dict[str, EngineEntry] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._state_changed = asyncio.Event()
        self._is_closed = False
        self._peak_held_bytes = 0
        self._evictions = 0

    @property
    def _current_model_memory(self) -> int:
        """Bytes of all resident models, and of all loads that have begun to allocate."""
        return sum(entry.held_bytes for entry in self._entries.values())

    def _find_lru_victim(self) -> EngineEntry | None:
        return find_lru_victim(self._entries.values())

    async def _make_resident(self, entry: EngineEntry) -> AsyncGenerator[LoadProgress]:
        """Bring a leased entry to READY, whatever state it is in; yields the load's progress."""
        while entry.state is not ModelState.READY:
            if self._is_closed:
                raise PoolClosedError
            if entry.state in (ModelState.DRAINING, ModelState.UNLOADING):
                await self._next_change()
                continue
            if entry.engine is not None:
                raise ModelLoadError(entry.model_id, entry.problem)
            attempt = entry.attempt or self._begin_load(entry)
            # Who comes while a load is being cancelled waits for its end and loads anew.
            is_too_late_to_join = attempt.error is not None
            seen = attempt.news_count
            yield attempt.progress
            await attempt.news_after(seen)
            if attempt.error and not is_too_late_to_join and entry.engine is None:
                raise attempt.error.with_traceback(None)
        self._touch(entry)

    def _begin_load(self, entry: EngineEntry) -> LoadAttempt:
        """Decide, reserve and start: between reading the state and claiming it nothing waits."""
        plan = plan_eviction(entry, self._entries.values(), self.max_model_memory)
        attempt = entry.attempt = LoadAttempt(entry.weights_bytes)
        entry.reserved_bytes = entry.footprint_bytes
        entry.problem = ""
        for victim in plan.victims:
            self._condemn(victim, entry)
        self._set_state(entry, ModelState.LOADING)
        self._emit(
            events.LoadStarted,
            model_id=entry.model_id,
            footprint_bytes=entry.reserved_bytes,
            victims=tuple(victim.model_id for victim in plan.victims),
        )
        started_s = self._clock()
        attempt.task = self._spawn(self._load_engine(entry, attempt))
        # A callback, not the task's own last lines: a task cancelled before its first step runs
        # none of them, and its reservation would stay for ever.
        attempt.task.add_done_callback(
            lambda task: self._settle_load(entry, attempt, task, started_s)
        )
        return attempt

    async def _load_engine(self, entry: EngineEntry, attempt: LoadAttempt) -> Engine:
        await self._ensure_memory_available(entry, attempt)
        entry.has_room = True
        # Room may have come from elsewhere meanwhile: whoever need not leave any more stays.
        self._release_victims(entry)
        spec = ModelSpec(
            model_id=entry.model_id, path=entry.path, weights_bytes=entry.weights_bytes
        )
        engine = await self._backend.load(spec, attempt.advance)
        entry.weights_bytes = engine.weights_bytes
        entry.weights_measured = True
        entry.reserved_bytes = entry.footprint_bytes
        try:
            # What was measured may be more than what was estimated.
            await self._ensure_memory_available(entry, attempt)
        except BaseException:
            await self._backend.unload(engine)
            raise
        return engine

    async def _ensure_memory_available(self, entry: EngineEntry, attempt: LoadAttempt) -> None:
        """Unload the victims one by one, until the reserved bytes are really free."""
        while True:
            if attempt.error is not None:
                raise attempt.error
            self._claim_room(entry)
            if has_physical_room(entry, self._entries.values(), self.max_model_memory):
                return
            victim = next(iter(lru_order(self._condemned_for(entry))), None)
            if victim is None:
                await self._next_change()
                continue
            if victim.is_active():
                # Somebody uses an engine that they got without a lease.
                self._spare(victim)
                continue
            # A victim that does not go keeps its bytes; the next turn plans without it.
            with suppress(ModelLoadError):
                await self._unload_engine(victim, for_model_id=entry.model_id)

    def _claim_room(self, entry: EngineEntry) -> None:
        """Condemn more victims if what was claimed is no longer covered."""
        plan = plan_eviction(entry, self._entries.values(), self.max_model_memory)
        for victim in plan.victims:
            self._condemn(victim, entry)

    def _settle_load(
        self,
        entry: EngineEntry,
        attempt: LoadAttempt,
        task: asyncio.Task[Engine],
        started_s: float,
    ) -> None:
        """The one place where a load ends: READY with its bytes, or with none."""
        entry.attempt = None
        entry.reserved_bytes = 0
        entry.has_room = False
        self._release_victims(entry)
        failure = asyncio.CancelledError() if task.cancelled() else task.exception()
        if failure is None:
            entry.engine = task.result()
            self._set_state(entry, ModelState.READY)
            self._emit(
                events.ModelLoaded,
                model_id=entry.model_id,
                weights_bytes=entry.weights_bytes,
                took_s=self._clock() - started_s,
            )
        else:
            self._settle_failed_load(entry, attempt, failure)
        attempt.tell()

    def _settle_failed_load(
        self, entry: EngineEntry, attempt: LoadAttempt, failure: BaseException
    ) -> None:
        if attempt.error is None:
            attempt.error = _load_error(entry.model_id, failure)
        if isinstance(attempt.error, ModelLoadError):
            entry.problem = attempt.error.reason
            self._set_state(entry, ModelState.FAILED)
        else:
            self._set_state(entry, ModelState.UNLOADED)
        if isinstance(attempt.error, LoadCancelledError):
            self._emit(events.LoadCancelled, model_id=entry.model_id, reason=attempt.error.reason)
        elif isinstance(attempt.error, PoolClosedError):
            self._emit(events.LoadCancelled, model_id=entry.model_id, reason="the pool is closing")
        else:
            self._emit(events.LoadFailed, model_id=entry.model_id, reason=str(attempt.error))

    def _cancel_load(self, entry: EngineEntry, error: PoolError) -> None:
        """End a load in flight, if there is one; its claim and its victims are free at once.

        One that has succeeded and not been settled yet is past cancelling.
        """
        attempt = entry.attempt
        if attempt is None or attempt.error is not None or attempt.task is None:
            return
        if attempt.task.done():
            return
        attempt.error = error
        attempt.task.cancel()
        self._release_victims(entry)

    # Victims

    def _condemned_for(self, entry: EngineEntry) -> list[EngineEntry]:
        return [
            victim
            for victim in self._entries.values()
            if victim.state is ModelState.DRAINING and victim.draining_for == entry.model_id
        ]

    def _release_victims(self, entry: EngineEntry) -> None:
        """Whoever has not begun to leave for this load stays."""
        for victim in self._condemned_for(entry):
            victim.draining_for = None
            self._set_state(victim, ModelState.READY)

    def _condemn(self, victim: EngineEntry, entry: EngineEntry) -> None:
        victim.draining_for = entry.model_id
        self._set_state(victim, ModelState.DRAINING)

    def _spare(self, victim: EngineEntry) -> None:
        """A victim whose unload has not begun is wanted: it stays, the load plans anew."""
        for_model_id = victim.draining_for or ""
        victim.draining_for = None
        self._set_state(victim, ModelState.READY)
        self._emit(events.VictimSpared, model_id=victim.model_id, for_model_id=for_model_id)
        loading = self._entries.get(for_model_id)
        if loading is None or loading.attempt is None:
            return
        try:
            self._claim_room(loading)
        except InsufficientMemoryError as error:
            self._cancel_load(loading, error)

    async def _unload_engine(
        self, entry: EngineEntry, *, reason: str = "", for_model_id: str | None = None
    ) -> int:
        """Unload and account for what MLX gave back; it goes on if the caller is cancelled."""
        engine = entry.engine
        if engine is None:
            return 0
        entry.draining_for = for_model_id
        self._set_state(entry, ModelState.UNLOADING)
        return await asyncio.shield(self._spawn(self._finish_unload(entry, engine, reason)))

    async def _finish_unload(self, entry: EngineEntry, engine: Engine, reason: str) -> int:
        started_s = self._clock()
        for_model_id, entry_problem = entry.draining_for, ""
        freed_bytes = 0
        try:
            freed_bytes = await self._backend.unload(engine)
        except Exception as error:  # noqa: BLE001 - whatever it is, the bytes stay counted
            entry_problem = f"it did not unload ({_one_line(error)}); restart to free its memory"
        entry.draining_for = None
        entry.problem = entry_problem
        if entry_problem:
            self._set_state(entry, ModelState.FAILED)
            self._emit(events.UnloadFailed, model_id=entry.model_id, reason=entry_problem)
            raise ModelLoadError(entry.model_id, entry_problem)
        entry.engine = None
        self._set_state(entry, ModelState.UNLOADED)
        took_s = self._clock() - started_s
        if for_model_id is None:
            self._emit(
                events.ModelUnloaded,
                model_id=entry.model_id,
                reason=reason,
                freed_bytes=freed_bytes,
                took_s=took_s,
            )
        else:
            self._evictions += 1
            self._emit(
                events.ModelEvicted,
                model_id=entry.model_id,
                for_model_id=for_model_id,
                idle_s=started_s - entry.last_access,
                freed_bytes=freed_bytes,
                took_s=took_s,
            )
        return freed_bytes

    # Small parts

    def _give_back(self, entry: EngineEntry) -> None:
        entry.leases -= 1
        if entry.engine is not None:
            self._touch(entry)
        if entry.leases == 0:
            self._cancel_load(entry, LoadCancelledError(entry.model_id))

    def _touch(self, entry: EngineEntry) -> None:
        entry.last_access = self._clock()

    def _set_state(self, entry: EngineEntry, state: ModelState) -> None:
        """The one place where a state changes; wakes whoever waits for that."""
        entry.state = state
        self._peak_held_bytes = max(self._peak_held_bytes, self._current_model_memory)
        self._state_changed.set()
        self._state_changed = asyncio.Event()

    async def _next_change(self) -> None:
        await self._state_changed.wait()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._next_change()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Its outcome is accounted for where it is awaited, or in the entry; if nobody waits any
        # more, asyncio need not complain.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _emit(self, event_type: type[events.PoolEvent], **facts: Any) -> None:
        self.events.append(
            event_type(
                seq=self.events.next_seq(),
                wall_s=self._wall_clock(),
                mono_s=self._clock(),
                **facts,
            )
        )


def _load_error(model_id: str, failure: BaseException) -> PoolError:
    if isinstance(failure, asyncio.CancelledError):
        return LoadCancelledError(model_id)
    if isinstance(failure, PoolError):
        return failure
    return ModelLoadError(model_id, _one_line(failure))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
