"""Who may use a model, who waits, and whose turn it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from omlx_tui.engines.base import Backend, Engine
from omlx_tui.engines.types import LoadProgress
from omlx_tui.pool.entry import EngineEntry, LoadAttempt
from omlx_tui.pool.errors import (
    InsufficientMemoryError,
    ModelLoadError,
    ModelNotFoundError,
    ModelNotServableError,
    PoolClosedError,
)
from omlx_tui.pool.lease import Lease
from omlx_tui.pool.options import PoolOptions
from omlx_tui.pool.requests import RequestBoard
from omlx_tui.pool.residency import ModelResidency
from omlx_tui.pool.serving import Waiting
from omlx_tui.pool.snapshot import ModelState
from omlx_tui.pool.waiting import Waiter, WaitingLine


class Admission(ModelResidency):
    """Leases, and the line of those for whom there is no room yet."""

    def __init__(
        self,
        max_model_memory: int,
        backend: Backend,
        options: PoolOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(max_model_memory, backend, options, clock=clock, wall_clock=wall_clock)
        self._line = WaitingLine(options.max_waiting)
        self._tickets = 0
        self._requests = RequestBoard(clock)

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
    async def lease(
        self,
        model_id: str,
        *,
        timeout: float = 0,  # noqa: ASYNC109 - it bounds the wait for room, not the block
    ) -> AsyncGenerator[Engine]:
        """Hold a model resident while the block runs.

        With a ``timeout`` in seconds, waits in line for room that others hold; models in use are
        drained for the one whose turn it is. Raises what ``get_engine`` raises, and
        ``WaitTimedOutError`` and ``QueueFullError``.
        """
        with self.hold(model_id, timeout=timeout) as lease:
            async for _ in lease.loading():
                pass
            yield lease.engine

    def hold(self, model_id: str, *, timeout: float = 0) -> Lease:
        """Claim a model before it is resident; ``Lease.loading`` makes it so.

        Raises:
            ModelNotFoundError, ModelNotServableError, PoolClosedError.
        """
        entry = self._known_entry(model_id)
        if self._is_closed:
            raise PoolClosedError
        if not entry.is_servable:
            raise ModelNotServableError(model_id, entry.problem)
        self._tickets += 1
        lease = Lease(
            entry,
            self._make_resident,
            give_back=self._give_back,
            timeout_s=timeout,
            ticket=self._tickets,
        )
        if entry.state is not ModelState.DRAINING or self._spare_if_replaceable(entry):
            lease.count()
        return lease

    async def _make_resident(self, lease: Lease) -> AsyncGenerator[LoadProgress | Waiting]:
        """Bring a leased entry to READY, whatever state it is in; yields what happens meanwhile."""
        entry = lease.entry
        deadline_s = asyncio.get_running_loop().time() + lease.timeout_s
        while not _is_granted(lease):
            if self._is_closed:
                raise PoolClosedError
            if self._entries.get(entry.model_id) is not entry:
                raise ModelNotFoundError(entry.model_id, self._entries)
            if entry.state in (ModelState.DRAINING, ModelState.UNLOADING):
                await self._until_it_has_left(lease, deadline_s)
                continue
            lease.count()
            if entry.state is ModelState.READY:
                break
            attempt = entry.attempt
            if entry.engine is not None and attempt is None:
                raise ModelLoadError(entry.model_id, entry.problem)
            if attempt is None:
                try:
                    attempt = self._begin_load_in_turn(entry, may_drain=lease.timeout_s > 0)
                except InsufficientMemoryError as reason:
                    async for news in self._wait_in_line(lease, reason, deadline_s):
                        yield news
                    continue
            # Who comes while a load is being cancelled waits for its end and loads anew.
            is_too_late_to_join = attempt.error is not None
            if not is_too_late_to_join:
                self._refuse_to_wait_for_drain(lease, attempt)
            seen = attempt.news_count
            yield attempt.progress
            await self._news_or_timeout(attempt, seen, lease, deadline_s)
            if attempt.error and not is_too_late_to_join and entry.engine is None:
                if lease.timeout_s > 0 and isinstance(attempt.error, InsufficientMemoryError):
                    continue
                raise attempt.error.with_traceback(None)
        self._touch(entry)

    async def _until_it_has_left(self, lease: Lease, deadline_s: float) -> None:
        """Wait behind those for whom this model leaves; an unload under way ends soon."""
        entry = lease.entry
        for_model = self._entries.get(entry.draining_for or "")
        if entry.state is ModelState.UNLOADING or entry.is_idle():
            await self._next_change()
            return
        reason = self._no_room(for_model or entry, blocking=[entry])
        if lease.timeout_s <= 0:
            raise reason
        self._require_time(deadline_s, lease, reason)
        await self._change_before(deadline_s)

    def _begin_load_in_turn(self, entry: EngineEntry, *, may_drain: bool) -> LoadAttempt:
        """Begin a load unless others wait for room; raises ``InsufficientMemoryError``."""
        if len(self._line):
            first = next(iter(self._line))
            raise InsufficientMemoryError(
                entry.model_id,
                needed_bytes=entry.footprint_bytes,
                budget_bytes=self.max_model_memory,
                free_bytes=0,
                freeable_bytes=0,
                blocking=(first.entry.model_id,),
            )
        return self._begin_load(entry, may_drain=may_drain)

    async def _wait_in_line(
        self, lease: Lease, reason: InsufficientMemoryError, deadline_s: float
    ) -> AsyncGenerator[Waiting]:
        """Wait until the model is on its way or it is this caller's turn to bring it in.

        Raises what began the wait, if this lease does not wait or waiting is no use.
        """
        if lease.timeout_s <= 0 or reason.can_never_fit:
            raise reason
        waiter = self._line.join(lease.entry, reason, lease.ticket)
        last: Waiting | None = None
        try:
            while not self._may_leave_line(waiter):
                self._require_time(deadline_s, lease, waiter.reason)
                news = Waiting(self._line.position(waiter), str(waiter.reason))
                if news != last:
                    last = news
                    yield news
                    continue  # what happened while the consumer was away may be decisive
                await self._change_before(deadline_s)
        finally:
            self._line.leave(waiter)
            self._announce_change()

    def _may_leave_line(self, waiter: Waiter) -> bool:
        """Whether the wait is over; the head begins its load by asking."""
        if self._is_closed:
            return True
        if waiter.entry.attempt is not None or waiter.entry.engine is not None:
            return True
        if not self._line.is_head(waiter):
            return False
        try:
            self._begin_load(waiter.entry, may_drain=True)
        except InsufficientMemoryError as reason:
            if reason.can_never_fit:
                raise
            waiter.reason = reason
            return False
        return True

    async def _news_or_timeout(
        self, attempt: LoadAttempt, seen: int, lease: Lease, deadline_s: float
    ) -> None:
        """Wait for a load's news; while it still waits for room, no longer than the lease does."""
        while attempt.news_count == seen:
            if lease.timeout_s <= 0 or lease.entry.has_room:
                await attempt.news_after(seen)
                return
            reason = self._no_room(lease.entry, blocking=self._victims_in_use(lease.entry))
            self._require_time(deadline_s, lease, reason)
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(max(0.0, deadline_s - loop.time())):
                    await attempt.news_after(seen)
            except TimeoutError:
                continue

    def _require_time(
        self, deadline_s: float, lease: Lease, reason: InsufficientMemoryError
    ) -> None:
        if asyncio.get_running_loop().time() >= deadline_s:
            raise reason.waited(lease.timeout_s)

    async def _change_before(self, deadline_s: float) -> None:
        remaining_s = deadline_s - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(0.0, remaining_s)):
                await self._next_change()
        except TimeoutError:
            return

    def _refuse_to_wait_for_drain(self, lease: Lease, attempt: LoadAttempt) -> None:
        """A caller who does not wait joins no load that waits for models in use."""
        in_use = self._victims_in_use(lease.entry)
        if lease.timeout_s <= 0 and attempt.may_drain and in_use:
            raise self._no_room(lease.entry, blocking=in_use)

    def _victims_in_use(self, entry: EngineEntry) -> list[EngineEntry]:
        return [victim for victim in self._condemned_for(entry) if not victim.is_idle()]

    def _no_room(
        self, entry: EngineEntry, *, blocking: list[EngineEntry]
    ) -> InsufficientMemoryError:
        """Why a model that waits for others to leave has no room yet."""
        return InsufficientMemoryError(
            entry.model_id,
            needed_bytes=entry.footprint_bytes,
            budget_bytes=self.max_model_memory,
            free_bytes=max(0, self.max_model_memory - self._current_model_memory),
            freeable_bytes=0,
            blocking=tuple(other.model_id for other in blocking),
        )

    def _known_entry(self, model_id: str) -> EngineEntry:
        entry = self._entries.get(self._options.aliases.get(model_id, model_id))
        if entry is None:
            raise ModelNotFoundError(model_id, self._entries)
        return entry


def _is_granted(lease: Lease) -> bool:
    """Whether the lease may use the engine: also while the model drains, if it was there before."""
    state = lease.entry.state
    return lease.is_counted and state in (ModelState.READY, ModelState.DRAINING)
