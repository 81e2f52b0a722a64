"""The ground a pool stands on: its entries, its clock, its events, and who waits for a change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from omlx_tui.engines.base import Backend
from omlx_tui.pool import events
from omlx_tui.pool.entry import EngineEntry
from omlx_tui.pool.eviction import find_lru_victim
from omlx_tui.pool.options import PoolOptions
from omlx_tui.pool.snapshot import ModelState

T = TypeVar("T")

_LOOK_AGAIN_S = 0.5


class PoolCore:
    """State that all layers of the pool share. Used on one event loop."""

    def __init__(
        self,
        max_model_memory: int,
        backend: Backend,
        options: PoolOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if max_model_memory <= 0:
            raise ValueError(f"max_model_memory must be above 0, not {max_model_memory}")
        self.max_model_memory = max_model_memory
        self.events = events.EventLog()
        self._backend = backend
        self._options = options
        self._clock = clock
        self._wall_clock = wall_clock
        self._entries: dict[str, EngineEntry] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._state_changed = asyncio.Event()
        self._is_closed = False
        self._peak_held_bytes = 0
        self._evictions: int = 0
        self._loads_begun = 0
        self._engine_problem = ""

    @property
    def _current_model_memory(self) -> int:
        """Bytes of all resident models, and of all loads that have begun to allocate."""
        return sum(entry.held_bytes for entry in self._entries.values())

    def _find_lru_victim(self) -> EngineEntry | None:
        return find_lru_victim(self._entries.values())

    def _touch(self, entry: EngineEntry) -> None:
        entry.last_access = self._clock()

    def _set_state(self, entry: EngineEntry, state: ModelState) -> None:
        """The one place where a state changes."""
        entry.state = state
        self._peak_held_bytes = max(self._peak_held_bytes, self._current_model_memory)
        self._announce_change()

    def _announce_change(self) -> None:
        """Wake whoever waits for a state, for a model to fall idle, or for a turn in line."""
        self._state_changed.set()
        self._state_changed = asyncio.Event()

    async def _change_or_moment(self) -> None:
        """Wait for a change, but not long.

        An engine that somebody uses without a lease tells nobody when that ends.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN_S):
                await self._next_change()

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
