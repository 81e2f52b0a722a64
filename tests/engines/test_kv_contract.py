"""What ``engines.base`` promises about KV budgets and caches, on the real backend and the fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from omlx_tui.engines import (
    Backend,
    ContextLengthError,
    Engine,
    Finished,
    FinishReason,
    GenerationEvent,
    KVBudgetError,
    ModelSpec,
    SamplingParams,
    SchedulerConfig,
)
from omlx_tui.engines.backend import MLXBackend
from tests.engines.driving import LLAMA, PROMPT
from tests.fakes import FakeBackend, a_request

# Says anything but that it is done, so that whoever waits for its room really waits.
ENDLESS = SamplingParams(temperature=3.0, seed=1)


@pytest.fixture(params=["fake", "mlx"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    made: Backend = FakeBackend() if request.param == "fake" else MLXBackend(SchedulerConfig())
    yield made
    await made.close()


@pytest.fixture
def spec(sample_models: Path) -> ModelSpec:
    return ModelSpec(model_id=LLAMA, path=sample_models / LLAMA, weights_bytes=3_478_016)


@pytest.fixture
async def engine(backend: Backend, spec: ModelSpec) -> Engine:
    """With room for one request of any length worth waiting for."""
    return await backend.load(replace(spec, kv_budget_bytes=1), lambda _: None)


async def start(engine: Engine, request_id: str) -> AsyncGenerator[GenerationEvent]:
    """A request that takes the whole budget."""
    prepared = await engine.prepare(a_request(PROMPT, request_id=request_id, sampling=ENDLESS))
    return engine.generate(prepared)


async def ends_of(events: AsyncGenerator[GenerationEvent]) -> list[Finished]:
    return [event async for event in events if isinstance(event, Finished)]


async def has_queued(engine: Engine, count: int) -> None:
    while engine.stats().queued_requests != count:
        await asyncio.sleep(0)


async def test_a_budget_is_never_less_than_one_sequence_needs(
    backend: Backend, spec: ModelSpec
) -> None:
    """None is no limit; what is too small is raised to the floor, which the engine tells."""
    engine = await backend.load(spec, lambda _: None)
    assert engine.kv_budget_bytes is None
    floor = engine.kv_costs.floor_bytes
    for wanted, given in ((1, floor), (floor + 1, floor + 1), (None, None)):
        engine.set_kv_budget(wanted)
        assert engine.kv_budget_bytes == given
    limited = await backend.load(replace(spec, kv_budget_bytes=1), lambda _: None)
    assert limited.kv_budget_bytes == floor


async def test_a_request_that_can_never_fit_is_refused_with_the_numbers(engine: Engine) -> None:
    """When it says how long its answer may be; nothing is queued."""
    budget = engine.kv_budget_bytes or 0
    with pytest.raises(KVBudgetError) as failure:
        await engine.prepare(a_request(PROMPT, max_tokens=engine.context_tokens))
    assert failure.value.budget_bytes == budget < failure.value.needed_bytes
    assert f"{budget:,}" in str(failure.value)
    assert not engine.has_active_requests()


async def test_an_answer_without_a_limit_gets_what_fits(engine: Engine) -> None:
    """At least one token of it; a prompt that leaves no room for one is refused."""
    prepared = await engine.prepare(a_request(PROMPT))
    tokens = len(prepared.prompt) + prepared.max_tokens
    budget = engine.kv_budget_bytes or 0
    assert engine.kv_costs.of_one(len(prepared.prompt), tokens) <= budget
    assert engine.kv_costs.of_one(len(prepared.prompt), tokens + 1) > budget
    with pytest.raises(KVBudgetError) as failure:
        await engine.prepare(a_request("fox " * 600))
    assert failure.value.answer_tokens == 1


async def test_who_finds_no_room_waits_and_is_served_in_turn(engine: Engine) -> None:
    """First come, first served; queued until there is room, each with one terminal event."""
    order: list[str] = []

    async def run(request_id: str, events: AsyncGenerator[GenerationEvent]) -> list[Finished]:
        ends = await ends_of(events)
        order.append(request_id)
        return ends

    first = await start(engine, "a")
    await anext(first)
    others = [
        asyncio.create_task(run(request_id, await start(engine, request_id)))
        for request_id in "bcd"
    ]
    await has_queued(engine, 3)
    assert engine.stats().active_requests == 1
    engine.abort("a")
    assert [end.reason for end in await ends_of(first)] == [FinishReason.ABORTED]
    ends = await asyncio.gather(*others)
    assert [len(each) for each in ends] == [1, 1, 1]
    assert order == ["b", "c", "d"]
    assert not engine.has_active_requests()


async def test_aborting_a_waiting_request_ends_it_and_lets_the_next_pass(engine: Engine) -> None:
    """It never began; the others keep their places."""
    first = await start(engine, "a")
    await anext(first)
    waiting = [asyncio.create_task(ends_of(await start(engine, name))) for name in "bc"]
    await has_queued(engine, 2)
    engine.abort("b")
    (end,) = await waiting[0]
    assert (end.reason, end.generated_tokens) == (FinishReason.ABORTED, 0)
    assert engine.stats().queued_requests == 1
    await first.aclose()
    (end,) = await waiting[1]
    assert end.generated_tokens > 0


async def test_a_client_that_leaves_the_queue_leaves_nothing_behind(engine: Engine) -> None:
    """Its id can be used again, and who waited behind it moves up."""
    first = await start(engine, "a")
    await anext(first)
    second = asyncio.create_task(anext(await start(engine, "b")))
    third = asyncio.create_task(ends_of(await start(engine, "c")))
    await has_queued(engine, 2)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert engine.stats().queued_requests == 1
    await first.aclose()
    assert len(await third) == 1
    async with aclosing(await start(engine, "b")) as events:
        await anext(events)
    assert not engine.has_active_requests()


async def test_more_room_lets_the_waiting_in(engine: Engine) -> None:
    """As soon as the budget is raised."""
    first = await start(engine, "a")
    await anext(first)
    second = await start(engine, "b")
    waiting = asyncio.create_task(anext(second))
    await has_queued(engine, 1)
    engine.set_kv_budget(None)
    await waiting
    assert engine.stats().active_requests == 2
    await first.aclose()
    await second.aclose()


async def test_an_unload_ends_those_who_wait(backend: Backend, engine: Engine) -> None:
    """With one terminal event each."""
    first = await start(engine, "a")
    await anext(first)
    waiting = [asyncio.create_task(ends_of(await start(engine, name))) for name in "bc"]
    await has_queued(engine, 2)
    unload = asyncio.create_task(backend.unload(engine))
    for ends in await asyncio.gather(ends_of(first), *waiting):
        assert [end.reason for end in ends] == [FinishReason.ABORTED]
    await unload
    assert not engine.has_active_requests()


async def test_a_context_limit_lowers_the_models_own(backend: Backend, spec: ModelSpec) -> None:
    """And never raises it."""
    own = (await backend.load(spec, lambda _: None)).context_tokens
    low = await backend.load(replace(spec, context_limit=64), lambda _: None)
    assert low.context_tokens == 64
    with pytest.raises(ContextLengthError):
        await low.prepare(a_request("fox " * 64))
    high = await backend.load(replace(spec, context_limit=own + 1), lambda _: None)
    assert high.context_tokens == own


async def test_caches_can_be_given_back_at_any_time(backend: Backend, spec: ModelSpec) -> None:
    """Before the first load, with nothing in them, and after the end."""
    assert await backend.drop_prefix_caches() == 0
    assert await backend.drop_buffer_cache() == 0
    engine = await backend.load(spec, lambda _: None)
    assert await backend.drop_prefix_caches(engine) == 0
    assert engine.stats().prefix_cache_bytes == 0
    await backend.drop_buffer_cache()
    assert backend.memory().cache_bytes == 0
    await backend.close()
    assert await backend.drop_prefix_caches() == 0
    assert await backend.drop_buffer_cache() == 0
