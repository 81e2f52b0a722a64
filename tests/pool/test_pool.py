"""The reference behaviour of the pool, on the fake backend: order of events and bookkeeping.

``test_reference_on_mlx.py`` repeats each line on real models.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from omlx_tui.engines import Finished, FinishReason, MemoryReading, TextDelta
from omlx_tui.pool import (
    Accepted,
    EnginePool,
    InsufficientMemoryError,
    ModelBusyError,
    ModelLoadError,
    ModelNotFoundError,
    ModelNotServableError,
    ModelState,
    PoolClosedError,
)
from omlx_tui.pool.events import LoadStarted, ModelEvicted, ModelLoaded, ModelUnloaded
from tests.fakes import FakeBackend, ManualClock, a_request
from tests.model_folders import write_model


def resident(pool: EnginePool) -> list[str]:
    """The resident models, most recently used first."""
    return [model.model_id for model in pool.snapshot().models if model.is_resident]


async def load_in_turn(pool: EnginePool, clock: ManualClock, *model_ids: str) -> None:
    for model_id in model_ids:
        await pool.get_engine(model_id)
        clock.advance(10)


async def test_a_model_is_loaded_on_demand(pool: EnginePool, backend: FakeBackend) -> None:
    """The first request loads, the second one finds the same engine."""
    engine = await pool.get_engine("a")
    assert await pool.get_engine("a") is engine
    assert backend.loads == ["a"]
    assert pool._entries["a"].state is ModelState.READY


async def test_last_access_moves_when_a_lease_is_taken_and_when_it_is_given_back(
    pool: EnginePool, clock: ManualClock
) -> None:
    """A long generation does not make its model look old."""
    async with pool.lease("a"):
        taken_s = pool._entries["a"].last_access
        assert taken_s == clock.now_s
        clock.advance(60)
    assert pool._entries["a"].last_access == taken_s + 60


async def test_the_least_recently_used_model_leaves(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Use makes a model warm again: the coldest one is the one that goes."""
    await load_in_turn(pool, clock, "a", "b", "c", "a")
    await pool.get_engine("d")
    assert backend.unloads == ["b"]
    assert resident(pool) == ["d", "a", "c"]


async def test_the_budget_is_checked_before_the_load_and_with_headroom(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Weights alone would fit (4 x 400 in 1650), the KV headroom does not: one is evicted first."""
    pool.max_model_memory = 1650
    await load_in_turn(pool, clock, "a", "b", "c", "d")
    assert backend.unloads == ["a"]
    assert backend.most_active_bytes == 1200


async def test_a_gauge_that_reads_low_stops_no_eviction(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger of footprints decides, whatever MLX's figures say at the moment."""
    monkeypatch.setattr(backend, "memory", MemoryReading)
    await load_in_turn(pool, clock, "a", "b", "c", "d")
    assert backend.unloads == ["a"]


async def test_the_next_victim_is_marked(pool: EnginePool, clock: ManualClock) -> None:
    """The console shows the model that the pool itself would choose."""
    await load_in_turn(pool, clock, "a", "b")
    marked = [model.model_id for model in pool.snapshot().models if model.is_next_victim]
    victim = pool._find_lru_victim()
    assert victim is not None
    assert marked == [victim.model_id] == ["a"]


async def test_a_pinned_model_stays(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """A pin protects the coldest model; the next one goes instead."""
    pool.pin("a")
    await load_in_turn(pool, clock, "a", "b", "c", "d")
    assert backend.unloads == ["b"]
    pool.unpin("a")
    await pool.get_engine("b")
    assert backend.unloads == ["b", "a"]


async def test_a_leased_model_stays(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Nobody evicts what somebody holds, before its first request and after its last."""
    async with pool.lease("a"):
        clock.advance(10)
        await load_in_turn(pool, clock, "b", "c", "d")
        assert backend.unloads == ["b"]


async def test_a_model_with_an_active_request_stays(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """An engine that works is protected even if it was got without a lease."""
    await load_in_turn(pool, clock, "a", "b", "c")
    engine = backend.engines["a"]
    engine.decode.close()
    generation = engine.generate(await engine.prepare(a_request()))
    await anext(generation)
    await pool.get_engine("d")
    assert backend.unloads == ["b"]
    await generation.aclose()


async def test_several_models_leave_for_one(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """A large model takes the place of several, coldest first, all gone before it allocates."""
    await load_in_turn(pool, clock, "b", "a", "c")
    await pool.get_engine("large")
    assert backend.unloads == ["b", "a", "c"]
    assert backend.most_active_bytes == 1200
    assert resident(pool) == ["large"]


async def test_a_request_that_cannot_be_satisfied_evicts_nothing(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """One pinned model blocks the large one: an error at once, and everybody is still there."""
    pool.pin("a")
    await load_in_turn(pool, clock, "a", "b", "c")
    with pytest.raises(InsufficientMemoryError) as failure:
        await pool.get_engine("large")
    assert failure.value.blocking == ("a",)
    assert failure.value.freeable_bytes == 1000
    assert backend.unloads == []
    assert resident(pool) == ["c", "b", "a"]
    assert pool._entries["large"].state is ModelState.UNLOADED
    assert pool._current_model_memory == 1500


async def test_a_model_that_can_never_fit_fails_at_once(
    pool: EnginePool, backend: FakeBackend, models: Path
) -> None:
    """Larger than the whole budget: nothing is evicted, the error says so."""
    write_model(models / "huge", weights_bytes=4000)
    pool.discover_models(models)
    await pool.get_engine("a")
    with pytest.raises(InsufficientMemoryError) as failure:
        await pool.get_engine("huge")
    assert failure.value.can_never_fit
    assert backend.unloads == []


async def test_an_unknown_model_names_its_neighbours(pool: EnginePool) -> None:
    """A typing error is answered with what it may have meant."""
    with pytest.raises(ModelNotFoundError, match="Did you mean large"):
        await pool.get_engine("larg")


async def test_a_model_that_cannot_be_served_says_why(pool: EnginePool, models: Path) -> None:
    """Found, listed, and refused with its reason."""
    write_model(models / "odd", model_type="no_such_type")
    pool.discover_models(models)
    with pytest.raises(ModelNotServableError, match="no_such_type"):
        await pool.get_engine("odd")


async def test_a_failed_load_holds_no_bytes_and_can_be_tried_again(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """FAILED keeps its reason; after a pause the next request tries anew."""
    backend.load_failures["a"] = "shard 2 is broken"
    with pytest.raises(ModelLoadError, match="shard 2 is broken"):
        await pool.get_engine("a")
    entry = pool._entries["a"]
    assert (entry.state, entry.problem) == (ModelState.FAILED, "shard 2 is broken")
    assert pool._current_model_memory == backend.active_bytes == 0
    del backend.load_failures["a"]
    clock.advance(6)
    await pool.get_engine("a")
    assert (entry.state, entry.problem) == (ModelState.READY, "")


async def test_measured_weights_replace_the_estimate(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Once loaded, the ledger counts what was measured, headroom included."""
    backend.measured_bytes["a"] = 480
    await pool.get_engine("a")
    model = pool.snapshot().model("a")
    assert model is not None
    assert (model.weights_bytes, model.weights_measured, model.held_bytes) == (480, True, 600)


async def test_a_model_that_turns_out_larger_makes_more_room(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """The budget holds also for what nobody could know before the load."""
    await load_in_turn(pool, clock, "b", "c")
    backend.measured_bytes["a"] = 600
    await pool.get_engine("a")
    assert backend.unloads == ["b"]
    assert pool._current_model_memory == 750 + 500


async def test_a_model_that_turns_out_too_large_is_given_up(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """If no room can be made for the measured size, the load fails and gives all back."""
    pool.pin("b")
    pool.pin("c")
    await load_in_turn(pool, clock, "b", "c")
    backend.measured_bytes["a"] = 600
    with pytest.raises(InsufficientMemoryError):
        await pool.get_engine("a")
    assert resident(pool) == ["c", "b"]
    assert pool._current_model_memory == 1000
    assert backend.active_bytes == 800


async def test_events_tell_the_eviction_with_its_reason(
    pool: EnginePool, clock: ManualClock
) -> None:
    """Who left, for whom, how long it had been idle, what it freed."""
    await load_in_turn(pool, clock, "a", "b", "c", "d")
    told = [
        e for e in pool.events.after(0) if isinstance(e, LoadStarted | ModelEvicted | ModelLoaded)
    ]
    evicted = next(event for event in told if isinstance(event, ModelEvicted))
    assert (evicted.model_id, evicted.for_model_id) == ("a", "d")
    assert (evicted.freed_bytes, evicted.idle_s) == (400, 30)
    assert [type(event) for event in told[-3:]] == [LoadStarted, ModelEvicted, ModelLoaded]
    assert "evicted a for d: least recently used (idle 30 s), freed 400 Bytes" in evicted.describe()
    assert [event.seq for event in pool.events.after(0)] == list(range(1, pool.events.last_seq + 1))


async def test_a_plan_says_what_a_load_would_do_and_does_nothing(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """``plan_load`` answers by the decision that a load would take."""
    await load_in_turn(pool, clock, "a", "b", "c")
    plan = pool.plan_load("d")
    assert (plan.fits, plan.victims, plan.freed_bytes, plan.needed_bytes) == (
        True,
        ("a",),
        500,
        500,
    )
    pool.pin("b")
    refused = pool.plan_load("large")
    assert not refused.fits
    assert "Held by b" in refused.problem
    assert pool.plan_load("a").is_resident
    assert backend.unloads == []
    with pytest.raises(ModelNotFoundError):
        pool.plan_load("nobody")


async def test_the_operator_unloads_an_idle_model_even_if_pinned(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """A pin guards against eviction, not against the operator; the pin stays."""
    pool.pin("a")
    await pool.get_engine("a")
    assert await pool.unload("a") == 400
    assert await pool.unload("a") == 0
    assert pool._entries["a"].is_pinned
    assert [type(e) for e in pool.events.after(0)][-1] is ModelUnloaded


async def test_a_busy_model_is_unloaded_only_by_force(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Without force: an error. With it, the running request ends once, as aborted."""
    await pool.get_engine("a")
    backend.engines["a"].decode.close()
    events = []

    async def consume() -> None:
        async for event in pool.generate("a", a_request(), client="test"):
            events.append(event)  # noqa: PERF401 - appended one by one, as they come

    consumer = asyncio.create_task(consume())
    while backend.engines["a"].decode.waiting == 0:
        await asyncio.sleep(0)
    with pytest.raises(ModelBusyError):
        await pool.unload("a")
    await pool.unload("a", force=True)
    await consumer
    ends = [event for event in events if isinstance(event, Finished)]
    assert [end.reason for end in ends] == [FinishReason.ABORTED]
    assert pool._entries["a"].leases == 0


async def test_a_request_is_served_from_accepted_to_finished(pool: EnginePool) -> None:
    """Accepted first, progress while it loads, the text, and exactly one end."""
    events = [event async for event in pool.generate("a", a_request(), client="test")]
    assert events[0] == Accepted("a", needs_load=True)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "once upon a time "
    assert [type(event) for event in events].count(Finished) == 1
    assert isinstance(events[-1], Finished)
    again = [event async for event in pool.generate("a", a_request(), client="test")]
    assert again[0] == Accepted("a", needs_load=False)


async def test_live_requests_are_in_the_snapshot(pool: EnginePool, backend: FakeBackend) -> None:
    """While it runs: who asks, of which model, how far; afterwards nothing of it."""
    await pool.get_engine("a")
    backend.engines["a"].decode.close()
    async with aclosing(pool.generate("a", a_request(), client="anna")) as events:
        await anext(events)
        await anext(events)
        (request,) = pool.snapshot().requests
        assert (request.client, request.model_id, request.state) == ("anna", "a", "prefill")
        assert request.prompt_tokens == 4
        model = pool.snapshot().model("a")
        assert model is not None
        assert (model.active_requests, model.is_busy) == (1, True)
    assert pool.snapshot().requests == ()
    assert pool._entries["a"].leases == 0
    assert backend.engines["a"].active == {}


async def test_the_default_model_is_the_last_one_used(pool: EnginePool, clock: ManualClock) -> None:
    """A request without a model goes where it needs no load."""
    assert pool.default_model_id() == "a"
    await load_in_turn(pool, clock, "c", "b")
    assert pool.default_model_id() == "b"


async def test_nothing_remains_after_close(pool: EnginePool, backend: FakeBackend) -> None:
    """No engine, no byte, no task; a closed pool refuses and closing again is harmless."""
    await pool.get_engine("a")
    await pool.close()
    await pool.close()
    assert backend.is_closed
    assert pool._current_model_memory == backend.active_bytes == 0
    assert pool._tasks == set()
    with pytest.raises(PoolClosedError):
        await pool.get_engine("a")


def test_a_budget_must_be_above_zero(backend: FakeBackend) -> None:
    """A pool that can hold nothing is a mistake, said at once."""
    with pytest.raises(ValueError, match="above 0"):
        EnginePool(0, backend=backend)
