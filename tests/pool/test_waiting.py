"""The line for room: first come, first served, and nobody passes or starves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from omlx_tui.engines import Finished, FinishReason
from omlx_tui.pool import (
    Accepted,
    EnginePool,
    InsufficientMemoryError,
    ModelLoadError,
    ModelState,
    PoolClosedError,
    QueueFullError,
    Waiting,
    WaitTimedOutError,
)
from omlx_tui.pool.options import PoolOptions
from tests.fakes import FakeBackend, FakeEngine, ManualClock, a_request


class User:
    """Somebody who holds a model until told to let go."""

    def __init__(self, pool: EnginePool, model_id: str, *, timeout: float = 30) -> None:
        self.model_id = model_id
        self.has_it = asyncio.Event()
        self._let_go = asyncio.Event()
        self.task = asyncio.create_task(self._use(pool, timeout))

    async def _use(self, pool: EnginePool, timeout: float) -> None:  # noqa: ASYNC109
        async with pool.lease(self.model_id, timeout=timeout) as engine:
            assert engine.model_id == self.model_id
            self.has_it.set()
            await self._let_go.wait()

    @staticmethod
    def ask(pool: EnginePool, model_id: str, request_id: str) -> asyncio.Task[object]:
        """A client's whole request; its task ends with the last event."""

        async def talk() -> object:
            request = a_request("one two three", request_id=request_id)
            async with aclosing(pool.generate(model_id, request, client="t")) as events:
                last: object = None
                async for event in events:
                    last = event
                return last

        return asyncio.create_task(talk())

    async def let_go(self) -> None:
        self._let_go.set()
        await self.task


async def settle(times: int = 30) -> None:
    """Let everything that can go on do so."""
    for _ in range(times):
        await asyncio.sleep(0)


@asynccontextmanager
async def a_pool(pool: EnginePool, options: PoolOptions) -> AsyncIterator[EnginePool]:
    """The same models under other options."""
    other = EnginePool(
        pool.max_model_memory, backend=FakeBackend(), clock=pool._clock, options=options
    )
    other._entries.update(pool._entries)
    yield other
    await other.close()


async def test_a_model_in_use_is_drained_for_the_one_who_waits(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """All room is in use: the coldest user's model leaves when its user has done."""
    users = [User(pool, model_id) for model_id in ("a", "b", "c")]
    for user in users:
        await user.has_it.wait()
    waiting = User(pool, "d")
    await settle()
    assert pool._entries["a"].state is ModelState.DRAINING
    assert pool._entries["b"].state is ModelState.READY
    assert not waiting.has_it.is_set()
    await users[0].let_go()
    await waiting.has_it.wait()
    assert backend.unloads == ["a"]
    for user in (*users[1:], waiting):
        await user.let_go()


async def test_a_stream_for_a_busy_model_starves_nobody(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Overlapping users of a small model: those who come after the waiter line up behind it."""
    pool.max_model_memory = 1500
    first = User(pool, "a")
    await first.has_it.wait()
    large = User(pool, "large")
    await settle()
    second = User(pool, "a")
    await settle()
    assert not second.has_it.is_set()
    await first.let_go()
    await large.has_it.wait()
    assert not second.has_it.is_set()
    await large.let_go()
    await second.has_it.wait()
    assert backend.loads == ["a", "large", "a"]
    await second.let_go()


async def test_a_loaded_model_serves_who_it_was_loaded_for(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """No thrash: two large models in turn, each held by its user before the other one's turn."""
    pool.max_model_memory = 500
    order: list[str] = []

    async def use(model_id: str) -> None:
        async with pool.lease(model_id, timeout=30):
            order.append(model_id)
            await settle(3)

    await asyncio.gather(*(use(model_id) for model_id in "abcdabcd"))
    assert sorted(order) == sorted("abcdabcd")
    assert len(backend.loads) <= 8


async def test_the_line_is_first_come_first_served(pool: EnginePool) -> None:
    """Nothing can leave; when it can, those who came first are served first."""
    pool.max_model_memory = 500
    pool.pin("a")
    holder = User(pool, "a")
    await holder.has_it.wait()
    served: list[str] = []

    async def use(model_id: str) -> None:
        async with pool.lease(model_id, timeout=30):
            served.append(model_id)

    waiting = []
    for model_id in ("c", "b", "d"):
        waiting.append(asyncio.create_task(use(model_id)))
        await settle()
    assert [waiter.entry.model_id for waiter in pool._line] == ["c", "b", "d"]
    pool.unpin("a")
    await holder.let_go()
    await asyncio.gather(*waiting)
    assert served == ["c", "b", "d"]
    assert len(pool._line) == 0


async def test_who_would_fit_does_not_pass_the_line(pool: EnginePool) -> None:
    """The large one waits behind a pin; a small one that fits lines up behind it."""
    pool.pin("a")
    holder = User(pool, "a")
    await holder.has_it.wait()
    large = User(pool, "large")
    await settle()
    small = User(pool, "b")
    await settle()
    assert not small.has_it.is_set()
    with pytest.raises(InsufficientMemoryError) as refusal:
        await pool.get_engine("c")
    assert refusal.value.blocking == ("large",)
    large.task.cancel()
    await small.has_it.wait()
    await small.let_go()
    await holder.let_go()


async def test_resident_models_serve_while_others_wait(pool: EnginePool) -> None:
    """A line for room is no line for those who need none."""
    pool.pin("a")
    holder = User(pool, "a")
    await holder.has_it.wait()
    large = User(pool, "large")
    await settle()
    again = User(pool, "a")
    await again.has_it.wait()
    for user in (again, holder):
        await user.let_go()
    large.task.cancel()
    await asyncio.wait({large.task})


async def test_a_wait_that_times_out_says_what_blocked_it(pool: EnginePool) -> None:
    """In the line, and while a victim drains; the victim is released."""
    pool.pin("a")
    holder = User(pool, "a")
    await holder.has_it.wait()
    with pytest.raises(WaitTimedOutError) as refusal:
        async with pool.lease("large", timeout=0.01):
            pass
    assert refusal.value.blocking == ("a",)
    assert "Waited" in str(refusal.value)
    assert len(pool._line) == 0
    pool.unpin("a")
    with pytest.raises(WaitTimedOutError) as refusal:
        async with pool.lease("large", timeout=0.01):
            pass
    assert refusal.value.blocking == ("a",)
    await pool._until(lambda: pool._entries["large"].state is ModelState.UNLOADED)
    assert pool._entries["a"].state is ModelState.READY
    assert pool._entries["large"].leases == 0
    await holder.let_go()


async def test_what_can_never_fit_does_not_wait(pool: EnginePool) -> None:
    """An error at once, though the caller would have waited."""
    pool.max_model_memory = 600
    with pytest.raises(InsufficientMemoryError) as refusal:
        async with pool.lease("large", timeout=1000):
            pass
    assert refusal.value.can_never_fit


async def test_the_line_is_bounded(pool: EnginePool) -> None:
    """One more than may wait is refused at once."""
    async with a_pool(pool, PoolOptions(max_waiting=1)) as pool:
        pool.max_model_memory = 500
        pool.pin("a")
        holder = User(pool, "a")
        await holder.has_it.wait()
        waiting = User(pool, "b")
        await settle()
        with pytest.raises(QueueFullError):
            async with pool.lease("c", timeout=30):
                pass
        waiting.task.cancel()
        await holder.let_go()
        pool.unpin("a")


async def test_who_leaves_the_line_makes_way(pool: EnginePool) -> None:
    """A cancelled waiter is gone from it, and the next one is the head."""
    pool.max_model_memory = 500
    pool.pin("a")
    holder = User(pool, "a")
    await holder.has_it.wait()
    first, second = User(pool, "large"), User(pool, "b")
    await settle()
    first.task.cancel()
    pool.unpin("a")
    await holder.let_go()
    await second.has_it.wait()
    await second.let_go()


async def test_a_client_sees_its_place_and_why(pool: EnginePool) -> None:
    """Accepted, then the place in the line with the reason, then the load; the snapshot says it."""
    pool.max_model_memory = 500
    pool.pin("a")
    holder = User(pool, "a")
    await holder.has_it.wait()
    async with aclosing(pool.generate("b", a_request(), client="t")) as events:
        assert await anext(events) == Accepted("b", needs_load=True)
        waiting = await anext(events)
        assert isinstance(waiting, Waiting)
        assert waiting.position == 1
        assert "Held by a" in waiting.reason
        (request,) = pool.snapshot().requests
        assert (request.queue_position, request.state) == (1, "waiting")
        assert "Held by a" in request.waits_for
        pool.unpin("a")
        await holder.let_go()
        rest = [event async for event in events]
    assert isinstance(rest[-1], Finished)


async def test_a_failing_model_is_not_loaded_in_a_loop(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """After each failure the pause doubles; the operator may try at once."""
    backend.load_failures["a"] = "broken"
    for pause_s in (5, 10, 20):
        with pytest.raises(ModelLoadError, match="broken"):
            await pool.get_engine("a")
        loads = len(backend.loads)
        clock.advance(pause_s - 1)
        with pytest.raises(ModelLoadError, match=r"tried again in 1 s"):
            await pool.get_engine("a")
        assert len(backend.loads) == loads
        clock.advance(1)
    del backend.load_failures["a"]
    clock.advance(-1)
    await pool.load("a")
    assert pool._entries["a"].failures == 0


async def test_a_load_has_a_deadline(pool: EnginePool) -> None:
    """It is given up, said so, and holds nothing."""
    async with a_pool(pool, PoolOptions(load_timeout_s=0.01)) as pool:
        backend = pool._backend
        assert isinstance(backend, FakeBackend)
        backend.load_gate.close()
        with pytest.raises(ModelLoadError, match="had not loaded"):
            await pool.get_engine("a")
        assert backend.active_bytes == pool._current_model_memory == 0


async def test_the_queue_at_a_resident_model_is_bounded_too(pool: EnginePool) -> None:
    """One more than may wait at the engine is refused before anything is promised to it."""
    async with a_pool(pool, PoolOptions(max_waiting=2)) as pool:
        engine = await pool.get_engine("a")
        assert isinstance(engine, FakeEngine)
        engine.decode.close()
        engine.set_kv_budget(0)  # room for one at a time
        clients = []
        for number in range(3):
            clients.append(User.ask(pool, "a", f"r{number}"))
            while engine.stats().active_requests + engine.stats().queued_requests <= number:
                await asyncio.sleep(0)
        assert engine.stats().queued_requests == 2
        with pytest.raises(QueueFullError):
            async with aclosing(
                pool.generate("a", a_request(request_id="more"), client="t")
            ) as events:
                await anext(events)
        engine.decode.open()
        ends = await asyncio.gather(*clients)
        assert all(isinstance(end, Finished) for end in ends)


async def test_a_wait_behind_a_drain_costs_nobody_their_place(pool: EnginePool) -> None:
    """``a`` is in use and there is room for one: b, a, c, d come, and are served like that."""
    pool.max_model_memory = 500
    holder = User(pool, "a")
    await holder.has_it.wait()
    served: list[str] = []

    async def use(model_id: str) -> None:
        async with pool.lease(model_id, timeout=30):
            served.append(model_id)
            await settle(2)

    waiting = []
    for model_id in "bacd":
        waiting.append(asyncio.create_task(use(model_id)))
        await settle()
    await holder.let_go()
    await asyncio.gather(*waiting)
    assert served == ["b", "a", "c", "d"]


async def test_who_does_not_wait_joins_no_wait(pool: EnginePool) -> None:
    """``get_engine`` raises at once though somebody else's load waits for a drain."""
    holder = User(pool, "a")
    await holder.has_it.wait()
    large = User(pool, "large")
    await settle()
    for model_id in ("large", "a"):
        with pytest.raises(InsufficientMemoryError):
            await pool.get_engine(model_id)
    await holder.let_go()
    await large.has_it.wait()
    await large.let_go()


async def test_who_can_never_fit_any_more_leaves_the_line(pool: EnginePool) -> None:
    """The budget falls below the head's need: it is told, and those behind it go on."""
    pool.pin("a")
    holder = User(pool, "a")
    await holder.has_it.wait()
    large = User(pool, "large")
    await settle()
    small = User(pool, "b")
    await settle()
    await pool.set_budget(1000)
    with pytest.raises(InsufficientMemoryError):
        await large.task
    await small.has_it.wait()
    for user in (small, holder):
        await user.let_go()


async def test_closing_wakes_the_line(pool: EnginePool, backend: FakeBackend) -> None:
    """Also when no state changes any more."""
    pool.max_model_memory = 500
    await pool.get_engine("a")
    backend.unload_failures["a"] = "stuck"
    with suppress(ModelLoadError):
        await pool.unload("a")
    waiting = User(pool, "b")
    await settle()
    await pool.close()
    with pytest.raises(PoolClosedError):
        await waiting.task


async def test_an_operators_drain_lets_requests_end_and_others_line_up(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """Asked for twice, it is still a drain; who comes meanwhile is served by a new load."""
    holder = User(pool, "a")
    await holder.has_it.wait()
    drains = [asyncio.create_task(pool.drain("a")) for _ in range(2)]
    await settle()
    late = User(pool, "a")
    await settle()
    assert not late.has_it.is_set()
    with pytest.raises(InsufficientMemoryError):
        await pool.get_engine("a")
    assert backend.unloads == []
    await holder.let_go()
    assert sorted(await asyncio.gather(*drains)) == [0, 400]
    await late.has_it.wait()
    await late.let_go()
    assert backend.loads == ["a", "a"]


async def test_a_drain_goes_on_without_its_caller(pool: EnginePool) -> None:
    """Whoever asked for it may go; the model leaves all the same."""
    holder = User(pool, "a")
    await holder.has_it.wait()
    drain = asyncio.create_task(pool.drain("a"))
    await settle()
    drain.cancel()
    await holder.let_go()
    await pool._until(lambda: pool._entries["a"].state is ModelState.UNLOADED)


async def test_a_drain_has_a_deadline(pool: EnginePool, backend: FakeBackend) -> None:
    """What still runs then is aborted, with its terminal event."""
    async with a_pool(pool, PoolOptions(drain_timeout_s=0.01)) as pool:
        engine = await pool.get_engine("a")
        assert isinstance(engine, FakeEngine)
        engine.decode.close()
        client = User.ask(pool, "a", "r")
        while not engine.active:
            await asyncio.sleep(0)
        assert await pool.drain("a") == 400
        end = await client
        assert isinstance(end, Finished)
        assert end.reason is FinishReason.ABORTED


async def test_a_load_that_measured_larger_does_not_wait_for_others(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """It is over the budget already: given up at once, its waiters line up with the real size."""
    pool.max_model_memory = 1000
    holder = User(pool, "a")
    await holder.has_it.wait()
    backend.measured_bytes["b"] = 600
    with pytest.raises(WaitTimedOutError):
        async with pool.lease("b", timeout=0.05):
            pass
    assert pool._current_model_memory <= 1000
    assert pool._entries["b"].footprint_bytes == 750
    await holder.let_go()
