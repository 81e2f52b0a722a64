"""Keeps the process below its memory limit, and the machine from running dry."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from omlx_tui.pool.process import ProcessReading


class PressureLevel(StrEnum):
    """How tight memory is."""

    NORMAL = "normal"
    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerLimits:
    """When to act.

    Attributes:
        process_limit_bytes: what the process may hold.
        soft_share, hard_share: of that limit; above the soft one memory is given back, above the
            hard one requests may be aborted.
        release_share: how far below a mark the process must fall for the pressure to end, so
            that it does not come and go with every token.
        min_available_bytes: the machine's free memory below which it is soft pressure as well;
            half of it is hard.
        allow_abort: whether requests may be aborted at the hard mark.
    """

    process_limit_bytes: int
    soft_share: float = 0.85
    hard_share: float = 0.95
    release_share: float = 0.05
    min_available_bytes: int = 512_000_000
    allow_abort: bool = False


def pressure_level(
    reading: ProcessReading, limits: EnforcerLimits, current: PressureLevel
) -> PressureLevel:
    """The level of a reading, given the present one: falling takes more than rising."""
    levels = (PressureLevel.HARD, PressureLevel.SOFT)
    order = [PressureLevel.NORMAL, PressureLevel.SOFT, PressureLevel.HARD]
    for level in levels:
        share = limits.hard_share if level is PressureLevel.HARD else limits.soft_share
        free_bytes = limits.min_available_bytes / (2 if level is PressureLevel.HARD else 1)
        if order.index(current) >= order.index(level):
            share -= limits.release_share
            free_bytes *= 1 + limits.release_share
        is_tight = reading.process_bytes > round(share * limits.process_limit_bytes)
        if is_tight or reading.available_bytes < round(free_bytes):
            return level
    return PressureLevel.NORMAL


class Relief(Protocol):
    """What the pool offers against pressure, in the order in which it hurts.

    Each gives something back and says whether there was anything to give.
    """

    async def give_back_buffer_cache(self) -> bool: ...

    async def give_back_prefix_caches(self) -> bool: ...

    async def evict_for_pressure(self) -> bool: ...

    async def cancel_newest_load(self) -> bool: ...

    async def abort_newest_request_of_coldest(self) -> bool: ...


class ProcessMemoryEnforcer:
    """Looks from time to time and climbs the ladder as far as it must.

    First MLX's buffer cache, then prefix caches, then models by the pool's own LRU order, then
    loads, and at the hard mark, if allowed, requests. It holds no latch: each look starts from
    the reading.

    Args:
        on_change: told each transition once, with the new level.
    """

    def __init__(
        self,
        relief: Relief,
        limits: EnforcerLimits,
        read: Callable[[], ProcessReading],
        on_change: Callable[[PressureLevel, ProcessReading], None],
    ) -> None:
        self._relief = relief
        self._limits = limits
        self._read = read
        self._on_change = on_change
        self.level = PressureLevel.NORMAL

    async def check(self) -> None:
        """One look, and what follows from it."""
        if self._look() is PressureLevel.NORMAL:
            return
        async for _ in self._ladder():
            if self._look() is PressureLevel.NORMAL:
                return

    async def _ladder(self) -> AsyncGenerator[None]:
        """Give back one thing after another; yields after each that gave anything."""
        relief = self._relief
        if await relief.give_back_buffer_cache():
            yield
        if await relief.give_back_prefix_caches():
            yield
        while await relief.evict_for_pressure():
            yield
        while await relief.cancel_newest_load():
            yield
        while self.level is PressureLevel.HARD and self._limits.allow_abort:
            if not await relief.abort_newest_request_of_coldest():
                return
            yield

    def _look(self) -> PressureLevel:
        reading = self._read()
        level = pressure_level(reading, self._limits, self.level)
        if level is not self.level:
            self.level = level
            self._on_change(level, reading)
        return level
