"""What a pool gives back under memory pressure, rung by rung."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from omlx_tui.pool import events
from omlx_tui.pool.admission import Admission
from omlx_tui.pool.enforcer import PressureLevel
from omlx_tui.pool.errors import LoadCancelledError, ModelLoadError
from omlx_tui.pool.eviction import lru_order
from omlx_tui.pool.process import ProcessReading, trim_heap

# How long an aborted request may take to be gone.
_ABORT_S = 2.0


class PressureRelief(Admission):
    """Implements ``enforcer.Relief``: the pool's own victims, unloads and cancels."""

    def note_pressure(
        self, level: PressureLevel, reading: ProcessReading, *, limit_bytes: int
    ) -> None:
        """Tell a transition of the enforcer."""
        self._emit(
            events.PressureChanged,
            level=level.value,
            process_bytes=reading.process_bytes,
            limit_bytes=limit_bytes,
            available_bytes=reading.available_bytes,
        )

    async def give_back_buffer_cache(self) -> bool:
        return self._gave_back("MLX's buffer cache", await self._backend.drop_buffer_cache())

    async def give_back_prefix_caches(self) -> bool:
        return self._gave_back("prefix caches", await self._backend.drop_prefix_caches())

    async def evict_for_pressure(self) -> bool:
        victim = self._find_lru_victim()
        if victim is None:
            return False
        try:
            await self._unload_engine(victim, reason="memory pressure")
        except ModelLoadError:
            return False
        trim_heap()
        return True

    async def cancel_newest_load(self) -> bool:
        loading = [e for e in self._entries.values() if e.attempt and not e.attempt.error]
        if not loading:
            return False
        newest = max(loading, key=lambda entry: entry.load_number)
        self._cancel_load(newest, LoadCancelledError(newest.model_id, "memory pressure"))
        await self._until(lambda: newest.attempt is None)
        return True

    async def abort_newest_request_of_coldest(self) -> bool:
        for entry in lru_order(e for e in self._entries.values() if e.is_active()):
            request_id = self._requests.newest_of(entry.model_id)
            if entry.engine is not None and request_id is not None:
                entry.engine.abort(request_id)
                # Bounded: its client may be slow to fetch the end, and other chores wait.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_ABORT_S):
                        while self._requests.is_live(request_id):
                            await self._next_change()
                return not self._requests.is_live(request_id)
        return False

    def _gave_back(self, what: str, freed_bytes: int) -> bool:
        if freed_bytes > 0:
            self._emit(events.MemoryGivenBack, what=what, freed_bytes=freed_bytes)
        return freed_bytes > 0
