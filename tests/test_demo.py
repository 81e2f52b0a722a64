"""The synthetic load: it wanders, it survives errors, and it stops at once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from omlx_tui.demo import PROMPTS, DemoLoad, DriftingChoice
from omlx_tui.engines.types import TextDelta
from omlx_tui.pool.serving import Accepted
from tests.gateway.fakes import FakePool, serving

MODELS = ("a", "b", "c", "d", "e")


async def at_once(_: float) -> None:
    await asyncio.sleep(0)


def test_favour_wanders_and_is_skewed() -> None:
    """At any time one model is asked most, and in the long run each of them is."""
    choice = DriftingChoice(MODELS, 1)
    favoured: Counter[bool] = Counter()
    asked: Counter[str] = Counter()
    for _ in range(600):
        favourite = choice.favourite
        model = choice.pick()
        asked[model] += 1
        favoured[model == favourite] += 1
    assert favoured[True] > favoured[False]
    assert min(asked[model] for model in MODELS) > 60


def test_the_same_seed_is_the_same_show() -> None:
    """A demo can be repeated."""
    one, two = (DriftingChoice(MODELS, 7) for _ in range(2))
    assert [one.pick() for _ in range(50)] == [two.pick() for _ in range(50)]


def test_no_models_is_an_error_at_once() -> None:
    """There is nothing to show."""
    with pytest.raises(ValueError, match="at least one model"):
        DemoLoad("ws://127.0.0.1:1", ())


async def test_it_prompts_every_model_through_the_socket() -> None:
    """Real connections, prompts that tiny models know, and every model in its turn."""
    pool = FakePool(*MODELS)
    async with serving(pool) as gateway:
        demo = DemoLoad(gateway.url, MODELS, pause=at_once)
        await demo.start()
        assert demo.is_running
        count = 0
        while {call.model_id for call in pool.calls} != set(MODELS):
            await pool.call(count)
            count += 1
        await demo.stop()
        assert not demo.is_running
    assert {call.request.messages[-1].content for call in pool.calls} <= set(PROMPTS)
    assert all(call.client.startswith("omlx-demo:") for call in pool.calls)


async def test_it_stops_in_the_middle_of_answers_and_leaves_no_task() -> None:
    """The same key that started it ends it, whatever the host is doing."""
    before = asyncio.all_tasks()
    pool = FakePool("a")
    pool.scripts["a"] = [Accepted("a", False), TextDelta("Once", 1), asyncio.Event()]
    async with serving(pool) as gateway:
        demo = DemoLoad(gateway.url, ["a"], pause=at_once)
        await demo.start()
        await pool.call(2)
        await demo.stop()
        for call in pool.calls:
            await call.ended.wait()
            assert call.was_cancelled
    assert asyncio.all_tasks() == before


async def test_it_survives_a_host_that_is_not_there() -> None:
    """Errors are tolerated; the clients go on trying until they are stopped."""
    pauses = asyncio.Semaphore(0)

    async def count(_: float) -> None:
        pauses.release()
        await asyncio.sleep(0)

    demo = DemoLoad("ws://127.0.0.1:1", ["a"], pause=count)
    await demo.start()
    for _ in range(12):
        await pauses.acquire()
    assert demo.is_running
    await demo.stop()


async def test_starting_twice_and_stopping_twice_do_nothing() -> None:
    """A key that is pressed in haste does no harm."""
    demo = DemoLoad("ws://127.0.0.1:1", ["a"])
    await demo.stop()
    await demo.start()
    running = asyncio.all_tasks()
    await demo.start()
    assert asyncio.all_tasks() == running
    await demo.stop()
    await demo.stop()
    assert not demo.is_running
