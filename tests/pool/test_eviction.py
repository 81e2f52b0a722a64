"""Choosing victims: pure decisions over entries, without a loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlx_tui.pool import InsufficientMemoryError, ModelState
from omlx_tui.pool.entry import EngineEntry
from omlx_tui.pool.eviction import find_lru_victim, has_physical_room, lru_order, plan_eviction
from tests.fakes import FakeEngine


def entry(
    model_id: str,
    *,
    last_access: float = 0.0,
    state: ModelState = ModelState.READY,
    weights_bytes: int = 400,
    **facts: object,
) -> EngineEntry:
    """An entry of footprint 500 unless told otherwise; resident ones have an engine."""
    is_resident = state in (ModelState.READY, ModelState.DRAINING, ModelState.UNLOADING)
    made = EngineEntry(
        model_id=model_id,
        path=Path(model_id),
        model_type="llama",
        weights_bytes=weights_bytes,
        headroom_share=0.25,
        state=state,
        last_access=last_access,
        engine=FakeEngine(model_id, weights_bytes) if is_resident else None,
        **facts,
    )
    if state is ModelState.LOADING:
        made.reserved_bytes = made.footprint_bytes
        made.has_room = True
    return made


def busy(model_id: str, **facts: object) -> EngineEntry:
    made = entry(model_id, **facts)
    assert isinstance(made.engine, FakeEngine)
    made.engine.active["r"] = None  # type: ignore[assignment]
    return made


WANTED = entry("wanted", state=ModelState.UNLOADED)


def ids(entries: object) -> list[str]:
    return [e.model_id for e in entries]  # type: ignore[attr-defined]


def test_the_footprint_is_weights_and_a_quarter() -> None:
    """25 % of the weights are set aside for the KV cache, rounded up."""
    assert entry("a").footprint_bytes == 500
    assert entry("a", weights_bytes=401).footprint_bytes == 401 + 101


def test_a_kv_cache_beyond_its_headroom_counts_in_full() -> None:
    """A model whose live KV cache outgrew its headroom is counted with what it uses."""
    grown = entry("a")
    grown.engine.kv_bytes = 150  # type: ignore[union-attr]
    assert grown.footprint_bytes == grown.held_bytes == 550


def test_the_order_is_by_last_access_then_by_id() -> None:
    """Coldest first; ties break by model id."""
    order = lru_order(
        [entry("b", last_access=2), entry("c", last_access=1), entry("a", last_access=2)]
    )
    assert ids(order) == ["c", "a", "b"]


@pytest.mark.parametrize(
    "excluded",
    [
        entry("x", is_pinned=True),
        entry("x", leases=1),
        busy("x"),
        entry("x", state=ModelState.LOADING),
        entry("x", state=ModelState.DRAINING),
        entry("x", state=ModelState.UNLOADING),
        entry("x", state=ModelState.UNLOADED),
        entry("x", state=ModelState.FAILED),
    ],
    ids=["pinned", "leased", "active", "loading", "draining", "unloading", "unloaded", "failed"],
)
def test_only_a_ready_idle_unpinned_model_is_a_victim(excluded: EngineEntry) -> None:
    """Pinned, leased, active and not-ready models are passed over, though they be the coldest."""
    warm = entry("warm", last_access=9)
    assert find_lru_victim([excluded, warm]) is warm
    assert find_lru_victim([excluded]) is None


def test_an_engine_that_cannot_say_whether_it_is_active_counts_as_busy() -> None:
    """``has_active_requests()`` that raises protects the model."""
    broken = entry("x")
    broken.engine.busy_check_error = RuntimeError("?")  # type: ignore[union-attr]
    assert find_lru_victim([broken]) is None


def test_nothing_is_evicted_when_there_is_room() -> None:
    """A load that fits has an empty plan."""
    plan = plan_eviction(WANTED, [entry("a"), WANTED], budget_bytes=1000)
    assert plan.victims == ()
    assert plan.free_bytes == 500


def test_the_plan_is_the_shortest_run_from_the_cold_end() -> None:
    """As many of the coldest as are needed, in that order, and not one more."""
    resident = [
        entry("hot", last_access=3),
        entry("cold", last_access=1),
        entry("mid", last_access=2),
    ]
    assert ids(plan_eviction(WANTED, resident, budget_bytes=1500).victims) == ["cold"]
    large = entry("large", state=ModelState.UNLOADED, weights_bytes=800)
    assert ids(plan_eviction(large, resident, budget_bytes=1500).victims) == ["cold", "mid"]


def test_the_run_skips_what_may_not_leave() -> None:
    """A pinned cold model does not end the run."""
    resident = [entry("cold", last_access=1, is_pinned=True), entry("mid", last_access=2)]
    assert ids(plan_eviction(WANTED, resident, budget_bytes=1000).victims) == ["mid"]


def test_reservations_of_loads_count() -> None:
    """Two loads can't both take the last room: the first one's reservation is not free."""
    loading = entry("loading", state=ModelState.LOADING)
    with pytest.raises(InsufficientMemoryError) as failure:
        plan_eviction(WANTED, [loading], budget_bytes=900)
    assert failure.value.blocking == ("loading",)


def test_what_is_leaving_is_not_evicted_twice() -> None:
    """A model that is unloading makes its room; nobody else need go for it."""
    leaving = entry("leaving", state=ModelState.UNLOADING)
    resident = entry("stays", last_access=1)
    assert plan_eviction(WANTED, [leaving, resident], budget_bytes=1000).victims == ()
    assert not has_physical_room(WANTED, [leaving, resident], budget_bytes=1000)


def test_the_error_says_what_is_needed_and_what_stands_in_the_way() -> None:
    """Needed, budget, free and freeable bytes, and the models that block."""
    resident = [entry("pinned", is_pinned=True), busy("busy"), entry("idle")]
    large = entry("large", state=ModelState.UNLOADED, weights_bytes=960)
    with pytest.raises(InsufficientMemoryError) as failure:
        plan_eviction(large, resident, budget_bytes=1600)
    error = failure.value
    assert (error.needed_bytes, error.budget_bytes) == (1200, 1600)
    assert (error.free_bytes, error.freeable_bytes) == (100, 500)
    assert error.blocking == ("pinned", "busy")
    assert not error.can_never_fit
    assert "Held by pinned, busy" in str(error)


def test_a_model_larger_than_the_budget_is_told_so() -> None:
    """The message names the budget, not what happens to be resident."""
    huge = entry("huge", state=ModelState.UNLOADED, weights_bytes=4000)
    with pytest.raises(InsufficientMemoryError) as failure:
        plan_eviction(huge, [entry("a")], budget_bytes=1500)
    assert failure.value.can_never_fit
    assert "more than the whole budget" in str(failure.value)
