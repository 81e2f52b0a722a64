"""Frozen pictures of live entries. Pure functions: they read and change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omlx_tui.engines.types import EngineStats, MemoryReading
from omlx_tui.pool.entry import EngineEntry
from omlx_tui.pool.errors import InsufficientMemoryError
from omlx_tui.pool.eviction import find_lru_victim, lru_order, plan_eviction
from omlx_tui.pool.requests import RequestBoard
from omlx_tui.pool.snapshot import LoadPlan, ModelSnapshot, ModelState, PoolSnapshot


def freeze_pool(
    *,
    seq: int,
    taken_s: float,
    wall_s: float,
    budget_bytes: int,
    held_bytes: int,
    peak_held_bytes: int,
    memory: MemoryReading,
    entries: Mapping[str, EngineEntry],
    board: RequestBoard,
    evictions: int,
    last_event_seq: int,
    problem: str,
) -> PoolSnapshot:
    """The whole pool; models in the order that ``PoolSnapshot`` promises."""
    resident = lru_order(entry for entry in entries.values() if entry.engine is not None)
    victim = find_lru_victim(entries.values())
    rank_of = {entry.model_id: rank for rank, entry in enumerate(resident)}
    others = sorted(
        (entry for entry in entries.values() if entry.engine is None),
        key=lambda entry: (entry.state is not ModelState.LOADING, entry.model_id),
    )
    models = tuple(
        _freeze_model(entry, rank_of.get(entry.model_id), entry is victim, board, taken_s)
        for entry in (*reversed(resident), *others)
    )
    return PoolSnapshot(
        seq=seq,
        taken_s=taken_s,
        wall_s=wall_s,
        budget_bytes=budget_bytes,
        held_bytes=held_bytes,
        peak_held_bytes=peak_held_bytes,
        memory=memory,
        models=models,
        requests=board.freeze(),
        tokens_per_s=sum(model.tokens_per_s for model in models),
        evictions=evictions,
        last_event_seq=last_event_seq,
        problem=problem,
    )


def freeze_plan(entry: EngineEntry, entries: Iterable[EngineEntry], budget_bytes: int) -> LoadPlan:
    """What loading ``entry`` would do, by the same decision that a load takes."""
    known = tuple(entries)
    is_resident = entry.state in (ModelState.READY, ModelState.DRAINING, ModelState.LOADING)
    others = [other for other in known if other is not entry]
    free_bytes = max(0, budget_bytes - sum(other.claimed_bytes for other in others))
    victims: tuple[EngineEntry, ...] = ()
    is_stuck = entry.state is ModelState.FAILED and entry.engine is not None
    problem = entry.problem if is_stuck or not entry.is_servable else ""
    if not is_resident and not problem:
        try:
            victims = plan_eviction(entry, known, budget_bytes).victims
        except InsufficientMemoryError as error:
            problem = str(error)
    return LoadPlan(
        model_id=entry.model_id,
        fits=not problem,
        is_resident=is_resident,
        needed_bytes=entry.footprint_bytes,
        free_bytes=free_bytes,
        freed_bytes=sum(victim.held_bytes for victim in victims),
        victims=tuple(victim.model_id for victim in victims),
        problem=problem,
    )


def _freeze_model(
    entry: EngineEntry,
    lru_rank: int | None,
    is_next_victim: bool,
    board: RequestBoard,
    now_s: float,
) -> ModelSnapshot:
    stats = entry.engine.stats() if entry.engine else EngineStats()
    return ModelSnapshot(
        model_id=entry.model_id,
        path=str(entry.path),
        model_type=entry.model_type,
        state=entry.state,
        is_servable=entry.is_servable,
        is_pinned=entry.is_pinned,
        is_next_victim=is_next_victim,
        lru_rank=lru_rank,
        last_access_s=entry.last_access or None,
        weights_bytes=entry.weights_bytes,
        weights_measured=entry.weights_measured,
        headroom_bytes=entry.headroom_bytes,
        held_bytes=entry.held_bytes,
        kv_bytes=stats.kv_bytes,
        active_requests=stats.active_requests,
        queued_requests=stats.queued_requests,
        leases=entry.leases,
        tokens_per_s=board.tokens_per_s(entry.model_id) if entry.engine else 0.0,
        load=entry.attempt.progress if entry.attempt else None,
        ttl_left_s=entry.ttl_left_s(now_s),
        problem=entry.problem,
    )
