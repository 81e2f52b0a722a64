"""From the socket to the tokens and back, on real models: what the project is for."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing

import mlx.core as mx
import pytest

from omlx_tui.client import Delta, Done, Loading, PromptError, stream_prompt
from omlx_tui.engines import SchedulerConfig
from omlx_tui.host import EngineHost
from omlx_tui.pool.events import ModelEvicted
from omlx_tui.settings import HostSettings

GEMMA, LLAMA, PHI, QWEN = "gemma3-2.6m-4bit", "llama-1m-fp32", "phi3-1m-bf16", "qwen3-1m-8bit"
STORY = "Tell me a story about a fox and a lantern."


@pytest.fixture
async def host() -> AsyncIterator[EngineHost]:
    """On the samples' budget of 8 MB, with loads cut into many slices."""
    config = SchedulerConfig(load_slice_bytes=64 * 1024)
    host = EngineHost(HostSettings(port=0, scheduler=config, drain_s=1))
    await host.start()
    ticks = itertools.count(1)
    host.pool._clock = lambda: float(next(ticks))
    yield host
    await host.close()


async def ask(host: EngineHost, model: str, *, max_tokens: int = 8) -> tuple[str, Done]:
    text = ""
    answer = stream_prompt(host.gateway.url, STORY, model=model, max_output_tokens=max_tokens)
    async with aclosing(answer) as events:
        async for event in events:
            if isinstance(event, Delta):
                text += event.text
            elif isinstance(event, Done):
                return text, event
    raise AssertionError("no end")


def evictions(host: EngineHost) -> list[ModelEvicted]:
    return [event for event in host.pool.events.after(0) if isinstance(event, ModelEvicted)]


async def quiet(host: EngineHost) -> None:
    """Until no request is live and no lease is held."""
    while host.pool.snapshot().requests or any(e.leases for e in host.pool._entries.values()):
        await asyncio.sleep(0)


async def test_prompts_load_and_evict_the_least_recently_used(host: EngineHost) -> None:
    """Three models by three prompts; the third one's room is the first one's."""
    for model in (LLAMA, GEMMA, PHI):
        text, done = await ask(host, model)
        assert text
        assert done.usage.output_tokens == 8
    (event,) = evictions(host)
    assert (event.model_id, event.for_model_id) == (LLAMA, PHI)
    assert event.freed_bytes >= host.pool._entries[LLAMA].weights_bytes
    assert "least recently used" in event.describe()
    snapshot = host.pool.snapshot()
    assert snapshot.held_bytes <= snapshot.budget_bytes


async def test_a_client_sees_the_load_and_then_the_tokens(host: EngineHost) -> None:
    """Loading events come before the first delta of a model that was absent."""
    kinds: list[type] = []
    async with aclosing(stream_prompt(host.gateway.url, STORY, model=QWEN)) as events:
        async for event in events:
            kinds.append(type(event))
            if isinstance(event, Delta):
                break
    assert kinds[0] is Loading
    assert kinds[-1] is Delta


async def test_a_model_that_is_generating_stays_and_its_answer_is_whole(
    host: EngineHost,
) -> None:
    """There is room for one of them: phi3 waits until gemma3's story is told."""
    host.pool.max_model_memory = 5_500_000
    story = stream_prompt(host.gateway.url, STORY, model=GEMMA, max_output_tokens=300)
    async with aclosing(story) as events:
        while not isinstance(await anext(events), Delta):
            pass
        waiting = asyncio.create_task(ask(host, PHI))
        rest = [event async for event in events]
    assert isinstance(rest[-1], Done)
    assert rest[-1].status in ("completed", "incomplete")
    text, _ = await waiting
    assert text
    assert [event.model_id for event in evictions(host)] == [GEMMA]


async def test_a_client_that_waits_too_long_is_told_what_blocks(
    host: EngineHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in memory is pinned: the refusal has the code that clients don't hammer."""
    options = dataclasses.replace(host.pool._options, wait_timeout_s=0.05)
    monkeypatch.setattr(host.pool, "_options", options)
    host.pool.max_model_memory = 5_500_000
    host.pool.pin(LLAMA)
    await ask(host, LLAMA)
    with pytest.raises(PromptError) as refusal:
        await ask(host, PHI)
    assert refusal.value.code == "server_is_overloaded"
    assert LLAMA in refusal.value.message
    assert evictions(host) == []


async def test_tokens_reach_a_client_while_another_model_loads(host: EngineHost) -> None:
    """Deltas arrive between the first and the last news of the other client's load."""
    async with aclosing(
        stream_prompt(host.gateway.url, STORY, model=GEMMA, max_output_tokens=700)
    ) as story:
        while not isinstance(await anext(story), Delta):
            pass
        other = asyncio.create_task(ask(host, PHI))
        states: set[str] = set()
        deltas_during_load = 0
        while not other.done():
            event = await anext(story)
            states.add(host.pool._entries[PHI].state.value)
            if isinstance(event, Delta) and host.pool._entries[PHI].state.value == "loading":
                deltas_during_load += 1
            if isinstance(event, Done):
                break
        await other
    assert "loading" in states
    assert deltas_during_load >= 5


async def test_a_killed_client_frees_its_slot(host: EngineHost) -> None:
    """In the middle of an answer and in the middle of a load; nothing is left of either."""
    for model in (LLAMA, PHI):
        async with aclosing(stream_prompt(host.gateway.url, STORY, model=model)) as events:
            await anext(events)
    await quiet(host)
    for _ in range(20):
        async with aclosing(stream_prompt(host.gateway.url, STORY, model=LLAMA)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    break
    await quiet(host)
    assert all(not entry.is_active() for entry in host.pool._entries.values())
    text, _ = await ask(host, LLAMA)
    assert text


async def test_a_long_conversation_of_many_clients(host: EngineHost) -> None:
    """Twenty clients, four models that don't fit together: each gets an answer or a refusal."""

    async def one(number: int) -> str:
        try:
            text, _ = await ask(host, (LLAMA, GEMMA, PHI, QWEN)[number % 4], max_tokens=4)
        except PromptError as error:
            return error.code
        return "answered" if text else "empty"

    outcomes = await asyncio.gather(*(one(number) for number in range(20)))
    assert set(outcomes) <= {"answered", "server_is_overloaded"}
    assert outcomes.count("answered") >= 5
    await quiet(host)


async def test_nothing_is_left_after_close() -> None:
    """MLX's active memory is what it was, in the middle of an answer too; the client is told."""
    before = mx.get_active_memory()
    host = EngineHost(HostSettings(port=0, drain_s=0))
    await host.start()
    async with aclosing(stream_prompt(host.gateway.url, STORY, model=LLAMA)) as events:
        while not isinstance(await anext(events), Delta):
            pass
        closing = asyncio.create_task(host.close())
        rest = [event async for event in events]
        await closing
    assert isinstance(rest[-1], Done)
    assert rest[-1].status == "cancelled"
    assert mx.get_active_memory() == before
