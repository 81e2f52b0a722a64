"""Who leaves, in which order, and whether that is enough. Pure functions over entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omlx_tui.pool.entry import EngineEntry
from omlx_tui.pool.errors import InsufficientMemoryError


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """The models to evict, coldest first, so that ``needed_bytes`` fit.

    ``free_bytes`` is what is unclaimed before the first eviction.
    """

    victims: tuple[EngineEntry, ...]
    needed_bytes: int
    free_bytes: int

    @property
    def freed_bytes(self) -> int:
        return sum(victim.held_bytes for victim in self.victims)


def lru_order(entries: Iterable[EngineEntry]) -> list[EngineEntry]:
    """Coldest first; ties break by model id."""
    return sorted(entries, key=lambda entry: (entry.last_access, entry.model_id))


def find_lru_victim(entries: Iterable[EngineEntry]) -> EngineEntry | None:
    """The one that leaves next, None if nothing may be evicted."""
    return min(
        (entry for entry in entries if entry.is_evictable()),
        key=lambda entry: (entry.last_access, entry.model_id),
        default=None,
    )


def plan_eviction(
    candidate: EngineEntry,
    entries: Iterable[EngineEntry],
    budget_bytes: int,
    *,
    may_drain: bool = False,
) -> EvictionPlan:
    """The shortest run of the LRU order that makes room for ``candidate``.

    ``candidate`` itself is not counted, whatever state it is in. With ``may_drain``, models that
    are in use come after the idle ones: they will leave when their users have done.

    Raises:
        InsufficientMemoryError: no run is long enough. Nothing has been changed.
    """
    others = [entry for entry in entries if entry is not candidate]
    needed_bytes = candidate.footprint_bytes
    room_bytes = budget_bytes - sum(other.claimed_bytes for other in others)
    free_bytes = max(0, room_bytes)
    evictable = lru_order(entry for entry in others if entry.is_evictable())
    in_use = lru_order(entry for entry in others if entry.is_drainable()) if may_drain else []
    victims: list[EngineEntry] = []
    for entry in (*evictable, *in_use):
        if room_bytes >= needed_bytes:
            break
        victims.append(entry)
        room_bytes += entry.held_bytes
    if room_bytes < needed_bytes:
        raise InsufficientMemoryError(
            candidate.model_id,
            needed_bytes=needed_bytes,
            budget_bytes=budget_bytes,
            free_bytes=free_bytes,
            freeable_bytes=sum(entry.held_bytes for entry in evictable),
            blocking=tuple(
                other.model_id
                for other in others
                if other.claimed_bytes and not other.is_evictable()
            ),
        )
    return EvictionPlan(tuple(victims), needed_bytes, free_bytes)


def has_physical_room(
    candidate: EngineEntry, entries: Iterable[EngineEntry], budget_bytes: int
) -> bool:
    """Whether ``candidate`` may start to allocate: those that leave have really left."""
    held_by_others = sum(entry.held_bytes for entry in entries if entry is not candidate)
    return held_by_others + candidate.footprint_bytes <= budget_bytes
