"""One model the pool knows: where it is, what it holds, who uses it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from pathlib import Path

from omlx_tui.engines.base import Engine
from omlx_tui.engines.types import LoadProgress
from omlx_tui.pool.errors import PoolError
from omlx_tui.pool.snapshot import ModelState


class LoadAttempt:
    """One load in flight, shared by all who wait for it.

    ``may_drain`` says that it waits for victims in use instead of sparing them; ``is_lost``, that
    the thread which loaded it has died.
    """

    def __init__(self, total_bytes: int, *, may_drain: bool) -> None:
        self.may_drain = may_drain
        self.progress = LoadProgress(0, total_bytes)
        self.error: PoolError | None = None
        self.task: asyncio.Task[Engine] | None = None
        self.news_count = 0
        self.is_lost = False
        self._news = asyncio.Event()

    async def news_after(self, seen: int) -> None:
        """Wait until there is more news (progress, or the end) than a caller has seen."""
        while self.news_count == seen:
            await self._news.wait()

    def tell(self) -> None:
        """Wake everybody who waits for news."""
        self.news_count += 1
        self._news.set()
        self._news = asyncio.Event()

    def advance(self, progress: LoadProgress) -> None:
        self.progress = progress
        self.tell()


@dataclass(slots=True, kw_only=True, eq=False)
class EngineEntry:
    """A model's place in the pool. Changed by ``EnginePool`` only, on its loop.

    Attributes:
        weights_bytes: measured if ``weights_measured``, else estimated from the files.
        headroom_share: the KV cache's share on top of the weights.
        ttl_s: seconds without a request after which it is unloaded; 0 for never.
        reserved_bytes: what a load has claimed; 0 unless LOADING.
        has_room: whether those that left for the load are gone, so that it may allocate.
        last_access: the pool's clock when a lease was last taken or given back; 0 if never.
        leases: callers that use the engine or wait for it to load.
        draining_for: the model this one makes room for, while DRAINING or UNLOADING.
        problem: why it can't be served, or why its last load failed.
        load_number: counts all loads of the pool, to tell older from newer ones.
        found_bytes: the estimate for files that changed while it was in memory; None if none did.
        failures: loads that failed in a row.
        retry_at_s: the pool's clock before which a failed load is not tried again.
    """

    model_id: str
    path: Path
    model_type: str
    weights_bytes: int
    headroom_share: float
    ttl_s: float = 0.0
    is_servable: bool = True
    is_pinned: bool = False
    weights_measured: bool = False
    state: ModelState = ModelState.UNLOADED
    reserved_bytes: int = 0
    has_room: bool = False
    last_access: float = 0.0
    leases: int = 0
    engine: Engine | None = None
    attempt: LoadAttempt | None = None
    draining_for: str | None = None
    problem: str = ""
    load_number: int = 0
    found_bytes: int | None = None
    failures: int = 0
    retry_at_s: float = 0.0

    @property
    def headroom_bytes(self) -> int:
        """What is set aside for the KV cache."""
        return math.ceil(self.weights_bytes * self.headroom_share)

    @property
    def kv_bytes(self) -> int:
        """What its requests and its kept prefixes hold now."""
        if self.engine is None:
            return 0
        stats = self.engine.stats()
        return stats.kv_bytes + stats.prefix_cache_bytes

    @property
    def footprint_bytes(self) -> int:
        """What it counts when it is resident: a KV cache beyond its headroom counts in full."""
        return self.weights_bytes + max(self.headroom_bytes, self.kv_bytes)

    @property
    def held_bytes(self) -> int:
        """What it takes of the budget now; these never add up to more than the budget.

        A load whose victims are still leaving takes nothing yet: their bytes are counted until
        they are gone. An engine that did not go when told to (FAILED, still there) keeps counting.
        """
        if self.state is ModelState.LOADING:
            return self.reserved_bytes if self.has_room else 0
        return self.footprint_bytes if self.engine is not None else 0

    @property
    def claimed_bytes(self) -> int:
        """What nobody else may plan with.

        A load claims its footprint from the moment of the decision. A model that is draining or
        unloading, and a load that is being cancelled, claim nothing: their room belongs to the
        load they leave for, or is about to be free.
        """
        if self.state in (ModelState.DRAINING, ModelState.UNLOADING):
            return 0
        if self.attempt is not None:
            return 0 if self.attempt.error else self.reserved_bytes
        return self.held_bytes

    def is_active(self) -> bool:
        """Whether its engine works or has work; an engine that can't say counts as busy."""
        if self.engine is None:
            return False
        try:
            return self.engine.has_active_requests()
        except Exception:  # noqa: BLE001 - the safe answer is the only one that matters
            return True

    def forget_measure(self) -> None:
        """Not in memory any more: what counts is what its files say, if they have changed."""
        if self.found_bytes is not None:
            self.weights_bytes, self.weights_measured = self.found_bytes, False
            self.found_bytes = None

    def is_idle(self) -> bool:
        """Whether nobody uses it."""
        return self.leases == 0 and not self.is_active()

    def is_evictable(self) -> bool:
        return self.state is ModelState.READY and not self.is_pinned and self.is_idle()

    def ttl_left_s(self, now_s: float) -> float | None:
        """Until its TTL expires; None if it has none or may not expire now."""
        if self.ttl_s <= 0 or not self.is_evictable():
            return None
        return max(0.0, self.last_access + self.ttl_s - now_s)

    def is_drainable(self) -> bool:
        """Whether it could leave once its users have done."""
        return self.state is ModelState.READY and not self.is_pinned and not self.is_idle()
