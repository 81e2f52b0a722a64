"""How models come into memory and leave it: reservations, victims, loads and unloads.

The half of the pool that changes states. Decisions are synchronous functions over the entries'
present state; whatever has waited reads the state again before it decides.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from omlx_tui.engines.base import Engine
from omlx_tui.engines.errors import EngineLostError
from omlx_tui.engines.types import ModelSpec
from omlx_tui.pool import events
from omlx_tui.pool.core import PoolCore
from omlx_tui.pool.entry import EngineEntry, LoadAttempt
from omlx_tui.pool.errors import (
    InsufficientMemoryError,
    LoadCancelledError,
    ModelLoadError,
    PoolClosedError,
    PoolError,
    load_error,
    one_line,
)
from omlx_tui.pool.eviction import has_physical_room, lru_order, plan_eviction
from omlx_tui.pool.snapshot import ModelState

# An estimate further off than this is worth an event.
_ESTIMATE_TOLERANCE = 0.05


class ModelResidency(PoolCore):
    """Loads under the budget, evictions for them, and how each of these ends."""

    def _begin_load(self, entry: EngineEntry, *, may_drain: bool) -> LoadAttempt:
        """Decide, reserve and start: between reading the state and claiming it nothing waits.

        Raises:
            InsufficientMemoryError: no room can be made; nothing has been changed.
            ModelLoadError: its last load failed a moment ago.
        """
        self._require_retry(entry)
        plan = plan_eviction(
            entry, self._entries.values(), self.max_model_memory, may_drain=may_drain
        )
        attempt = entry.attempt = LoadAttempt(entry.weights_bytes, may_drain=may_drain)
        self._loads_begun += 1
        entry.load_number = self._loads_begun
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
        own = self._options.of(entry.model_id)
        spec = ModelSpec(
            model_id=entry.model_id,
            path=entry.path,
            weights_bytes=entry.weights_bytes,
            kv_budget_bytes=entry.headroom_bytes,
            context_limit=own.context_tokens,
            sampling=own.sampling,
        )
        engine = await self._load_before_deadline(spec, attempt)
        self._take_measure(entry, engine.weights_bytes)
        engine.set_kv_budget(entry.headroom_bytes)
        entry.reserved_bytes = entry.footprint_bytes
        attempt.may_drain = False  # over the budget already: nobody's answer is waited for
        try:
            # What was measured may be more than what was estimated.
            await self._ensure_memory_available(entry, attempt)
        except BaseException:
            await self._give_up_engine(entry, engine)
            raise
        return engine

    async def _give_up_engine(self, entry: EngineEntry, engine: Engine) -> None:
        """Unload what was loaded in vain; if it does not go, its bytes stay counted."""
        try:
            await self._backend.unload(engine)
        except Exception as error:
            entry.engine = engine
            raise ModelLoadError(entry.model_id, f"it did not unload ({error})") from error

    async def _load_before_deadline(self, spec: ModelSpec, attempt: LoadAttempt) -> Engine:
        timeout_s = self._options.load_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._backend.load(spec, attempt.advance)
        except TimeoutError as error:
            raise ModelLoadError(
                spec.model_id, f"it had not loaded after {timeout_s:.0f} s"
            ) from error

    def _take_measure(self, entry: EngineEntry, measured_bytes: int) -> None:
        """Replace the estimate; one that was far off is worth knowing."""
        estimated_bytes = entry.weights_bytes
        entry.weights_bytes = measured_bytes
        if not entry.weights_measured and (
            abs(measured_bytes - estimated_bytes) > _ESTIMATE_TOLERANCE * estimated_bytes
        ):
            self._emit(
                events.EstimateOff,
                model_id=entry.model_id,
                estimated_bytes=estimated_bytes,
                measured_bytes=measured_bytes,
            )
        entry.weights_measured = True

    async def _ensure_memory_available(self, entry: EngineEntry, attempt: LoadAttempt) -> None:
        """Unload the victims one by one, until the reserved bytes are really free."""
        while True:
            if attempt.error is not None:
                raise attempt.error
            self._claim_room(entry)
            if has_physical_room(entry, self._entries.values(), self.max_model_memory):
                return
            condemned = lru_order(self._condemned_for(entry))
            victim = next((each for each in condemned if each.is_idle()), None)
            if victim is None:
                await self._await_victims(condemned, attempt)
                continue
            # A victim that does not go keeps its bytes; the next turn plans without it.
            with suppress(ModelLoadError):
                await self._unload_engine(victim, for_model_id=entry.model_id)

    async def _await_victims(self, condemned: list[EngineEntry], attempt: LoadAttempt) -> None:
        """Wait for victims in use to be done, or spare them if this load does not wait."""
        if not condemned:
            await self._next_change()
        elif attempt.may_drain:
            await self._change_or_moment()
        else:
            for victim in condemned:
                self._spare(victim)

    def _claim_room(self, entry: EngineEntry) -> None:
        """Condemn more victims if what was claimed is no longer covered."""
        may_drain = entry.attempt is not None and entry.attempt.may_drain
        plan = plan_eviction(
            entry, self._entries.values(), self.max_model_memory, may_drain=may_drain
        )
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
        failure = asyncio.CancelledError() if task.cancelled() else task.exception()
        if failure is None and attempt.is_lost:
            failure = EngineLostError(self._engine_problem)
        if failure is None:
            entry.engine = task.result()
            entry.failures = 0
            self._engine_problem = ""
            self._set_state(entry, ModelState.READY)
            self._emit(
                events.ModelLoaded,
                model_id=entry.model_id,
                weights_bytes=entry.weights_bytes,
                took_s=self._clock() - started_s,
            )
        else:
            self._settle_failed_load(entry, attempt, failure)
        self._release_victims(entry)
        attempt.tell()

    def _settle_failed_load(
        self, entry: EngineEntry, attempt: LoadAttempt, failure: BaseException
    ) -> None:
        if attempt.error is None:
            attempt.error = load_error(entry.model_id, failure)
        if entry.engine is None:
            entry.forget_measure()
        if isinstance(attempt.error, ModelLoadError):
            entry.problem = attempt.error.reason
            self._postpone_retry(entry)
            self._set_state(entry, ModelState.FAILED)
        else:
            self._set_state(entry, ModelState.UNLOADED)
        if isinstance(attempt.error, LoadCancelledError):
            self._emit(events.LoadCancelled, model_id=entry.model_id, reason=attempt.error.reason)
        elif isinstance(attempt.error, PoolClosedError):
            self._emit(events.LoadCancelled, model_id=entry.model_id, reason="the pool is closing")
        else:
            self._emit(events.LoadFailed, model_id=entry.model_id, reason=str(attempt.error))

    def _postpone_retry(self, entry: EngineEntry) -> None:
        """After each failure twice as long, so that a stream of requests is no loop of loads."""
        options = self._options
        pause_s = min(options.retry_after_s * 2**entry.failures, options.retry_after_max_s)
        entry.failures += 1
        entry.retry_at_s = self._clock() + pause_s

    def _require_retry(self, entry: EngineEntry) -> None:
        remaining_s = entry.retry_at_s - self._clock()
        if entry.state is ModelState.FAILED and remaining_s > 0:
            raise ModelLoadError(
                entry.model_id, f"{entry.problem} (tried again in {math.ceil(remaining_s)} s)"
            )

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

    def _on_engines_lost(self, reason: str) -> None:
        """The thread that ran the models has died: nothing is in memory any more.

        Their requests have had their ends from the engines; the next request loads anew.
        """
        lost = [entry for entry in self._entries.values() if entry.engine is not None]
        self._engine_problem = f"the MLX thread died: {reason}"
        self._emit(
            events.EngineThreadDied,
            reason=reason,
            lost=tuple(entry.model_id for entry in lru_order(lost)),
        )
        for entry in self._entries.values():
            if entry.attempt is not None and entry.has_room:
                entry.attempt.is_lost = True
                self._cancel_load(entry, LoadCancelledError(entry.model_id, self._engine_problem))
        for entry in lost:
            entry.engine = None
            entry.forget_measure()
            entry.draining_for = None
            self._set_state(entry, ModelState.UNLOADED)

    # Victims

    def _condemned_for(self, entry: EngineEntry) -> list[EngineEntry]:
        return [
            victim
            for victim in self._entries.values()
            if victim.state is ModelState.DRAINING and victim.draining_for == entry.model_id
        ]

    def _release_victims(self, entry: EngineEntry) -> None:
        """Whoever has not begun to leave for this load stays."""
        released = self._condemned_for(entry)
        for victim in released:
            victim.draining_for = None
            self._set_state(victim, ModelState.READY)
        if released:
            # Another load may have planned with what they would have left over.
            self._recheck_claims()

    def _condemn(self, victim: EngineEntry, entry: EngineEntry) -> None:
        victim.draining_for = entry.model_id
        self._set_state(victim, ModelState.DRAINING)

    def _spare_if_replaceable(self, victim: EngineEntry) -> bool:
        """Spare a victim that is asked for, if idle models can take its place; says whether.

        Otherwise the one who asks lines up behind the load that the victim leaves for.
        """
        loading = self._entries.get(victim.draining_for or "")
        if loading is None or loading.attempt is None:
            return False
        others = [entry for entry in self._entries.values() if entry is not victim]
        try:
            plan_eviction(loading, others, self.max_model_memory - victim.held_bytes)
        except InsufficientMemoryError:
            return False
        self._spare(victim)
        return True

    def _spare(self, victim: EngineEntry) -> None:
        """A victim whose unload has not begun is wanted: it stays, the load plans anew."""
        for_model_id = victim.draining_for or ""
        victim.draining_for = None
        self._set_state(victim, ModelState.READY)
        self._emit(events.VictimSpared, model_id=victim.model_id, for_model_id=for_model_id)
        was_counted = victim.leases
        victim.leases += 1  # it is about to be used: not the next plan's victim again
        try:
            self._recheck_claims()
        finally:
            victim.leases = was_counted

    def _recheck_claims(self) -> None:
        """Room that loads had planned with is not to be had: the newest ones look for other room.

        One that finds none is given up; who waits for it lines up again.
        """
        planned = [
            entry
            for entry in self._entries.values()
            if entry.attempt and not entry.attempt.error and not entry.has_room
        ]
        for entry in sorted(planned, key=lambda each: -each.load_number):
            if sum(each.claimed_bytes for each in self._entries.values()) <= self.max_model_memory:
                return
            try:
                self._claim_room(entry)
            except InsufficientMemoryError as error:
                self._cancel_load(entry, error)

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
            if entry.engine is None:
                return 0  # the thread that held it has died, and its memory with it
            entry_problem = f"it did not unload ({one_line(error)}); restart to free its memory"
        if entry.engine is not engine:
            return 0  # lost with its thread meanwhile, and perhaps loaded anew
        entry.draining_for = None
        entry.problem = entry_problem
        if entry_problem:
            self._set_state(entry, ModelState.FAILED)
            self._emit(events.UnloadFailed, model_id=entry.model_id, reason=entry_problem)
            raise ModelLoadError(entry.model_id, entry_problem)
        entry.engine = None
        entry.forget_measure()
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
        self._announce_change()
