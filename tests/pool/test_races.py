"""What happens while something else is happening. Gates decide the order, nothing sleeps."""

from __future__ import annotations

import asyncio

import pytest

from omlx_tui.engines import Engine, EngineClosedError
from omlx_tui.pool import (
    EnginePool,
    InsufficientMemoryError,
    LoadCancelledError,
    ModelBusyError,
    ModelState,
    PoolClosedError,
)
from omlx_tui.pool.events import LoadCancelled, UnloadFailed, VictimSpared
from tests.fakes import FakeBackend, Gate, ManualClock, a_request


async def reached(gate: Gate) -> None:
    """Wait until somebody stands before a closed gate."""
    while gate.waiting == 0:
        await asyncio.sleep(0)


def start(pool: EnginePool, model_id: str) -> asyncio.Task[Engine]:
    return asyncio.create_task(pool.get_engine(model_id))


async def wait_for(pool: EnginePool, model_id: str) -> str:
    async with pool.lease(model_id, timeout=30) as engine:
        return engine.model_id


async def fill(pool: EnginePool, clock: ManualClock, *model_ids: str) -> None:
    for model_id in model_ids:
        await pool.get_engine(model_id)
        clock.advance(10)


async def test_sixty_four_callers_share_one_load(pool: EnginePool, backend: FakeBackend) -> None:
    """One load, one engine, for all who ask while it runs."""
    callers = [start(pool, "a") for _ in range(64)]
    engines = await asyncio.gather(*callers)
    assert backend.loads == ["a"]
    assert len(set(map(id, engines))) == 1
    assert pool._entries["a"].leases == 0


async def test_a_caller_that_leaves_does_not_cancel_the_others(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Whichever of three callers goes, the other two are served."""
    backend.load_gate.close()
    first, second, third = (start(pool, "a") for _ in range(3))
    await reached(backend.load_gate)
    first.cancel()
    await asyncio.wait({first})
    backend.load_gate.open()
    assert await second is await third
    assert backend.loads == ["a"]


async def test_when_the_last_caller_leaves_the_load_is_cancelled(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Its bytes come back, nothing stays reserved, and the model can be loaded again."""
    backend.load_gate.close()
    callers = [start(pool, "a") for _ in range(3)]
    await reached(backend.load_gate)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    backend.load_gate.open()
    await pool._until(lambda: pool._entries["a"].state is ModelState.UNLOADED)
    assert pool._current_model_memory == backend.active_bytes == 0
    assert isinstance(pool.events.after(0)[-1], LoadCancelled)
    await pool.get_engine("a")


async def test_a_load_cancelled_before_its_first_step_leaves_nothing(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """The task never ran a line; the reservation is gone all the same."""
    lease = pool.hold("a")
    loading = lease.loading()
    await anext(loading)
    lease.__exit__(None, None, None)
    await loading.aclose()
    await pool._until(lambda: pool._entries["a"].state is ModelState.UNLOADED)
    assert backend.loads == []
    assert pool._current_model_memory == 0


async def test_who_comes_while_a_load_is_being_cancelled_gets_a_new_one(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """The cancellation belongs to those who left, not to the next one."""
    backend.load_gate.close()
    leaver = start(pool, "a")
    await reached(backend.load_gate)
    pool._cancel_load(pool._entries["a"], LoadCancelledError("a"))
    newcomer = start(pool, "a")
    backend.load_gate.open()
    with pytest.raises(LoadCancelledError):
        await leaver
    assert (await newcomer).model_id == "a"
    assert backend.loads == ["a", "a"]


async def test_the_room_of_a_load_that_is_being_cancelled_can_be_planned_with(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """A client kills its request and asks for another model at once: that one waits, not fails."""
    pool.max_model_memory = 800
    backend.load_gate.close()
    leaver = start(pool, "a")
    await reached(backend.load_gate)
    leaver.cancel()
    await asyncio.wait({leaver})
    request = start(pool, "b")
    await asyncio.sleep(0)
    backend.load_gate.open()
    assert (await request).model_id == "b"
    assert backend.most_active_bytes == 400


async def test_two_loads_in_one_tick_never_share_the_last_room(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Each needs most of the budget: the second one sees the first one's reservation."""
    pool.max_model_memory = 800
    first, second = start(pool, "a"), start(pool, "b")
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(results[1], InsufficientMemoryError)
    assert results[1].blocking == ("a",)
    assert backend.loads == ["a"]


async def test_loads_of_different_models_go_side_by_side(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Two loads stand in the backend at once."""
    backend.load_gate.close()
    callers = [start(pool, "a"), start(pool, "b")]
    while backend.load_gate.waiting < 2:
        await asyncio.sleep(0)
    backend.load_gate.open()
    await asyncio.gather(*callers)


async def test_a_resident_model_serves_while_another_one_loads(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """A request for a resident model runs from end to end during a load that stands still."""
    await pool.get_engine("a")
    backend.load_gate.close()
    loading = start(pool, "b")
    await reached(backend.load_gate)
    events = [event async for event in pool.generate("a", a_request(), client="t")]
    assert events
    assert not loading.done()
    backend.load_gate.open()
    await loading


async def test_a_loading_model_is_never_a_victim(pool: EnginePool, backend: FakeBackend) -> None:
    """The large model can't push out one that is on its way in."""
    backend.load_gate.close()
    loading = start(pool, "a")
    await reached(backend.load_gate)
    with pytest.raises(InsufficientMemoryError):
        await pool.get_engine("large")
    backend.load_gate.open()
    await loading


async def test_a_request_for_a_model_that_is_leaving_waits_and_loads_anew(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """It never gets the dying engine."""
    dying = await pool.get_engine("a")
    backend.unload_gate.close()
    unload = asyncio.create_task(pool.unload("a"))
    await reached(backend.unload_gate)
    request = start(pool, "a")
    await asyncio.sleep(0)
    assert not request.done()
    backend.unload_gate.open()
    await unload
    assert await request is not dying
    assert backend.loads == ["a", "a"]


async def test_a_victim_with_a_new_request_is_spared_and_the_plan_made_again(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Two must go; while the first one leaves, the second one is asked for: a third goes."""
    await fill(pool, clock, "a", "b", "c")
    large = pool._entries["large"]
    large.weights_bytes = 800  # footprint 1000: two small ones have to leave
    backend.unload_gate.close()
    load = start(pool, "large")
    await reached(backend.unload_gate)
    assert pool._entries["b"].state is ModelState.DRAINING
    async with pool.lease("b"):
        assert pool._entries["b"].state is ModelState.READY
        assert pool._entries["c"].state is ModelState.DRAINING
        backend.unload_gate.open()
        await load
        assert backend.unloads == ["a", "c"]
    spared = [event for event in pool.events.after(0) if isinstance(event, VictimSpared)]
    assert [event.model_id for event in spared] == ["b"]


async def test_if_nobody_can_replace_a_victim_its_request_lines_up(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """The load was there first: the victim leaves, and who asks for it waits for its turn."""
    await fill(pool, clock, "a", "b", "c")
    backend.unload_gate.close()
    load = start(pool, "large")
    await reached(backend.unload_gate)
    late = asyncio.create_task(wait_for(pool, "c"))
    await asyncio.sleep(0)
    backend.unload_gate.open()
    assert (await load).model_id == "large"
    assert await late == "c"
    assert backend.loads == ["a", "b", "c", "large", "c"]
    assert pool._entries["c"].leases == 0


async def test_a_cancelled_load_gives_its_victims_back(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Who had not begun to leave stays."""
    await fill(pool, clock, "a", "b", "c")
    backend.unload_gate.close()
    load = start(pool, "large")
    await reached(backend.unload_gate)
    load.cancel()
    await asyncio.wait({load})
    backend.unload_gate.open()
    await pool._until(lambda: pool._entries["a"].state is ModelState.UNLOADED)
    states = [pool._entries[model_id].state for model_id in ("b", "c", "large")]
    assert states == [ModelState.READY, ModelState.READY, ModelState.UNLOADED]


async def test_a_draining_engine_that_works_is_spared(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Somebody kept an engine without a lease and uses it between the plan and its unload."""
    await fill(pool, clock, "a", "b", "c")
    engine = backend.engines["b"]
    engine.decode.close()
    pool._entries["large"].weights_bytes = 800
    backend.unload_gate.close()
    load = start(pool, "large")
    await reached(backend.unload_gate)
    generation = engine.generate(await engine.prepare(a_request()))
    await anext(generation)
    backend.unload_gate.open()
    await load
    assert backend.unloads == ["a", "c"]
    await generation.aclose()


async def test_an_engine_that_does_not_unload_keeps_its_bytes(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """It is shown as failed, still counted, and the load takes the next victim."""
    await fill(pool, clock, "a", "b", "c")
    backend.unload_failures["a"] = "stuck"
    await pool.get_engine("d")
    entry = pool._entries["a"]
    assert entry.state is ModelState.FAILED
    assert "stuck" in entry.problem
    assert entry.held_bytes == 500
    assert backend.unloads == ["b"]
    assert any(isinstance(event, UnloadFailed) for event in pool.events.after(0))


async def test_the_operator_cancels_a_load(pool: EnginePool, backend: FakeBackend) -> None:
    """Unloading a loading model ends the load, for everybody who waits for it."""
    backend.load_gate.close()
    waiting = start(pool, "a")
    await reached(backend.load_gate)
    await pool.unload("a")
    with pytest.raises(LoadCancelledError):
        await waiting
    assert pool._current_model_memory == backend.active_bytes == 0


async def test_closing_ends_loads_and_waiting_requests(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Everybody hears of it; nothing waits for ever."""
    backend.load_gate.close()
    waiting = start(pool, "a")
    await reached(backend.load_gate)
    await pool.close()
    with pytest.raises(PoolClosedError):
        await waiting
    assert backend.active_bytes == 0


async def test_a_slow_consumer_does_not_miss_the_end_of_a_load(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """The load ends while the consumer is busy with an earlier piece of news."""
    with pool.hold("a") as lease:
        loading = lease.loading()
        await anext(loading)
        await pool._until(lambda: pool._entries["a"].state is ModelState.READY)
        assert [progress async for progress in loading] == []
        assert lease.engine.model_id == "a"


async def test_fifty_swaps_return_to_the_base(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """A, B, A, B …: the ledger and the backend agree at the end."""
    pool.max_model_memory = 500
    for _ in range(25):
        await fill(pool, clock, "a", "b")
    assert pool._current_model_memory == 500
    assert backend.active_bytes == 400
    assert len(backend.unloads) == 49


async def test_victims_that_need_not_leave_any_more_stay(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Room comes from elsewhere while the first victim leaves: the second one is ready again,
    and the next load does not wait for it for ever."""
    pool.max_model_memory = 2000
    await fill(pool, clock, "a", "b", "c", "d")
    pool._entries["large"].weights_bytes = 800  # footprint 1000: a and b have to leave
    backend.unload_gate.close()
    load = start(pool, "large")
    await reached(backend.unload_gate)
    freed = asyncio.create_task(pool.unload("d"))
    backend.unload_gate.open()
    await load
    await freed
    assert pool._entries["b"].state is ModelState.READY
    assert (await asyncio.wait_for(pool.get_engine("d"), 5)).model_id == "d"


async def test_a_victim_that_is_pinned_before_it_leaves_stays(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """A pin is a promise from the moment it is given."""
    await fill(pool, clock, "a", "b", "c")
    pool._entries["large"].weights_bytes = 800
    backend.unload_gate.close()
    load = start(pool, "large")
    await reached(backend.unload_gate)
    assert pool._entries["b"].state is ModelState.DRAINING
    pool.pin("b")
    backend.unload_gate.open()
    await load
    assert backend.unloads == ["a", "c"]
    assert pool._entries["b"].state is ModelState.READY


async def test_a_model_in_use_is_unloaded_only_by_force_before_its_first_token_too(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """A request being tokenised counts as use; forced out, it ends with an engine's error."""
    await pool.get_engine("a")
    gate = backend.engines["a"].prepare_gate
    gate.close()
    events = pool.generate("a", a_request(), client="t")
    first = asyncio.ensure_future(anext(events))
    await reached(gate)
    with pytest.raises(ModelBusyError):
        await pool.unload("a")
    await pool.unload("a", force=True)
    gate.open()
    await first
    with pytest.raises(EngineClosedError):
        await anext(events)
    assert pool._entries["a"].leases == 0


async def test_a_cancel_that_comes_too_late_unloads_instead(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """The load has ended, its callback has not run: whoever waits is served, the unload is real."""
    waiting = start(pool, "a")
    await asyncio.sleep(0)
    attempt = pool._entries["a"].attempt
    assert attempt is not None
    assert attempt.task is not None
    while not attempt.task.done():
        await asyncio.sleep(0)
    pool._cancel_load(pool._entries["a"], LoadCancelledError("a"))
    assert (await waiting).model_id == "a"
    assert pool._entries["a"].state is ModelState.READY


async def test_closing_goes_on_past_an_engine_that_does_not_unload(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """The others are unloaded and the backend is closed."""
    await fill(pool, clock, "a", "b")
    backend.unload_failures["a"] = "stuck"
    await pool.close()
    assert backend.is_closed
    assert pool._current_model_memory == 0
