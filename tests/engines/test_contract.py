"""What ``engines.base`` promises, held by the real backend and by the tests' fake alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from omlx_tui.engines import (
    Backend,
    ContextLengthError,
    Engine,
    EngineClosedError,
    Finished,
    FinishReason,
    GenerationEvent,
    LoadFailedError,
    LoadProgress,
    ModelSpec,
    PrefillProgress,
    SchedulerConfig,
    TextDelta,
)
from omlx_tui.engines.backend import MLXBackend
from tests.engines.driving import LLAMA
from tests.fakes import FakeBackend, a_request

PROMPT = "Tell me a story about a fox and a lantern and whatever else comes to your mind today."


@pytest.fixture(params=["fake", "mlx"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    made: Backend = (
        FakeBackend(slices=8)
        if request.param == "fake"
        else MLXBackend(SchedulerConfig(load_slice_bytes=256 * 1024))
    )
    yield made
    await made.close()


@pytest.fixture
def spec(sample_models: Path) -> ModelSpec:
    return ModelSpec(model_id=LLAMA, path=sample_models / LLAMA, weights_bytes=3_478_016)


@pytest.fixture
async def engine(backend: Backend, spec: ModelSpec) -> Engine:
    return await backend.load(spec, lambda _: None)


async def generate(engine: Engine, request_id: str = "r", **facts: object) -> list[GenerationEvent]:
    prepared = await engine.prepare(a_request(PROMPT, request_id=request_id, **facts))
    return [event async for event in engine.generate(prepared)]


async def test_a_load_reports_its_progress_to_the_end(backend: Backend, spec: ModelSpec) -> None:
    """Bytes done rise to the total, in several steps; the engine tells what it measured."""
    seen: list[LoadProgress] = []
    engine = await backend.load(spec, seen.append)
    done = [progress.done_bytes for progress in seen]
    assert done == sorted(done)
    assert len(set(done)) > 4
    assert seen[-1] == LoadProgress(engine.weights_bytes, engine.weights_bytes)
    assert engine.model_id == LLAMA
    assert backend.memory().active_bytes >= engine.weights_bytes


async def test_a_generation_ends_once(engine: Engine) -> None:
    """Prefill, text, and exactly one ``Finished``, with counts that agree."""
    events = await generate(engine, max_tokens=5)
    ends = [event for event in events if isinstance(event, Finished)]
    assert events[-1:] == ends
    assert isinstance(events[0], PrefillProgress)
    assert ends[0].reason is FinishReason.LENGTH
    assert ends[0].generated_tokens == 5
    assert ends[0].prompt_tokens == events[0].total_tokens > 0
    assert "".join(event.text for event in events if isinstance(event, TextDelta)).strip()
    assert not engine.has_active_requests()


async def test_requests_run_side_by_side(engine: Engine) -> None:
    """Each gets its own events and its own end."""
    answers = await asyncio.gather(*(generate(engine, f"r{i}", max_tokens=4) for i in range(5)))
    assert all(isinstance(events[-1], Finished) for events in answers)


async def test_an_engine_is_active_from_submit_to_the_end(engine: Engine) -> None:
    """Queued and prefilling count as much as decoding."""
    prepared = await engine.prepare(a_request(PROMPT, max_tokens=4))
    async with aclosing(engine.generate(prepared)) as events:
        await anext(events)
        assert engine.has_active_requests()
        stats = engine.stats()
        assert stats.active_requests + stats.queued_requests == 1
    assert not engine.has_active_requests()


async def test_an_abort_ends_a_request_with_its_terminal_event(engine: Engine) -> None:
    """The consumer hears of it; aborting again, or an unknown request, is harmless."""
    prepared = await engine.prepare(a_request(PROMPT))
    events: list[GenerationEvent] = []
    async for event in engine.generate(prepared):
        events.append(event)
        if isinstance(event, TextDelta):
            engine.abort("r1")
            engine.abort("r1")
            engine.abort("nobody")
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.ABORTED
    assert [type(event) for event in events].count(Finished) == 1


async def test_closing_the_generator_ends_the_request(engine: Engine) -> None:
    """A client that went away leaves nothing behind, and its id can be used again."""
    prepared = await engine.prepare(a_request(PROMPT))
    async with aclosing(engine.generate(prepared)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert not engine.has_active_requests()
    assert isinstance((await generate(engine, "r1", max_tokens=2))[-1], Finished)


async def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(engine: Engine) -> None:
    """Before anything is queued."""
    words = "fox " * (engine.context_tokens + 1)
    with pytest.raises(ContextLengthError) as failure:
        await engine.prepare(a_request(words))
    assert failure.value.context_tokens == engine.context_tokens
    assert failure.value.prompt_tokens > engine.context_tokens


async def test_unloading_ends_the_running_requests_and_gives_the_memory_back(
    backend: Backend, engine: Engine
) -> None:
    """One terminal event each; the bytes returned are at least the weights."""
    prepared = await engine.prepare(a_request(PROMPT))
    events = engine.generate(prepared)
    await anext(events)
    unload = asyncio.create_task(backend.unload(engine))
    rest = [event async for event in events]
    assert isinstance(rest[-1], Finished)
    assert rest[-1].reason is FinishReason.ABORTED
    assert await unload >= engine.weights_bytes
    assert backend.memory().active_bytes < engine.weights_bytes
    with pytest.raises(EngineClosedError):
        await anext(engine.generate(prepared))


async def test_a_cancelled_load_gives_its_memory_back(backend: Backend, spec: ModelSpec) -> None:
    """Cancelled between two slices: when the call returns, nothing of it is left."""
    has_begun = asyncio.Event()

    def on_progress(progress: LoadProgress) -> None:
        if 0 < progress.done_bytes < progress.total_bytes:
            has_begun.set()

    load = asyncio.create_task(backend.load(spec, on_progress))
    await has_begun.wait()
    load.cancel()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert backend.memory().active_bytes < 100
    await backend.load(spec, lambda _: None)


async def test_a_load_that_fails_says_why_and_holds_nothing(
    backend: Backend, tmp_path: Path
) -> None:
    """The reason is one line; the backend goes on."""
    spec = ModelSpec(model_id="broken", path=tmp_path, weights_bytes=1000)
    if isinstance(backend, FakeBackend):
        backend.load_failures["broken"] = "no config.json"
    with pytest.raises(LoadFailedError, match=r"config\.json"):
        await backend.load(spec, lambda _: None)
    assert backend.memory().active_bytes < 100


async def test_closing_twice_is_harmless(backend: Backend, engine: Engine) -> None:
    """And leaves no model behind."""
    await backend.close()
    await backend.close()
    assert backend.memory().active_bytes < 100
