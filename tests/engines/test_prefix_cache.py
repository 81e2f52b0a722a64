"""Caches of finished requests: the same answers, sooner, inside the KV budget."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing
from pathlib import Path

import mlx.core as mx
import pytest

from omlx_tui.engines import (
    Engine,
    FinishReason,
    Message,
    PrefillProgress,
    SamplingParams,
    SchedulerConfig,
    TextDelta,
)
from omlx_tui.engines.backend import MLXBackend
from omlx_tui.engines.batch import ModelBatch
from tests.engines.driving import LLAMA, PROMPT, SAMPLES, answer, load
from tests.fakes import a_request

# Long enough for the window of gemma3, 128 tokens, to turn.
LONG = "Tell me a long story about a fox and a lantern and the river and the moon. " * 8
TEXTS = (PROMPT, LONG, LONG, LONG + "Then tell me another one.", PROMPT, LONG + "Hello!")


async def say_all(engine: Engine, *, together: bool) -> list[str]:
    """The answers to texts that share their beginnings, with and without random choices."""
    hot = SamplingParams(temperature=0.8, seed=5, presence_penalty=0.5)
    asked = [
        answer(engine, text, f"r{i}", max_tokens=24, sampling=hot if i % 2 else SamplingParams())
        for i, text in enumerate(TEXTS)
    ]
    if together:
        return [text for text, _ in await asyncio.gather(*asked)]
    return [(await one)[0] for one in asked]


@pytest.mark.parametrize("model_id", SAMPLES)
async def test_a_cached_prefix_changes_no_answer(sample_models: Path, model_id: str) -> None:
    """Neither one after the other nor side by side, trimmed or not, also past a window."""
    plain = MLXBackend(SchedulerConfig(prefix_cache=False))
    engine = await load(plain, sample_models, model_id)
    expected = await say_all(engine, together=False)
    await plain.close()
    backend = MLXBackend(SchedulerConfig(prefill_step_tokens=100))
    engine = await load(backend, sample_models, model_id)
    for together in (False, True, False):
        assert await say_all(engine, together=together) == expected
    assert engine.stats().prefix_cache_bytes > 0
    await backend.close()


@pytest.mark.parametrize("model_id", SAMPLES)
async def test_the_same_prompt_is_not_read_twice(
    backend: MLXBackend, sample_models: Path, model_id: str
) -> None:
    """All but its last token comes from the cache, or but two; progress begins there."""
    engine = await load(backend, sample_models, model_id)
    _, first = await answer(engine, LONG, max_tokens=30)
    assert first.cached_tokens == 0
    prepared = await engine.prepare(a_request(LONG, max_tokens=30))
    events = [event async for event in engine.generate(prepared)]
    cached = events[-1].cached_tokens  # type: ignore[union-attr]
    assert len(prepared.prompt) - 2 <= cached < len(prepared.prompt)
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert all(event.processed_tokens > cached for event in progress)
    assert progress[-1] == PrefillProgress(len(prepared.prompt), len(prepared.prompt))


@pytest.mark.parametrize("model_id", SAMPLES)
async def test_a_conversation_goes_on_from_where_it_was(
    backend: MLXBackend, sample_models: Path, model_id: str
) -> None:
    """The second turn reads little more than what is new in it."""
    engine = await load(backend, sample_models, model_id)
    request = a_request(LONG, max_tokens=40)
    text, first = await answer(engine, LONG, max_tokens=40)
    turns = (*request.messages, Message("assistant", text), Message("user", "Hello!"))
    prepared = await engine.prepare(type(request)(request_id="r2", messages=turns, max_tokens=5))
    events = [event async for event in engine.generate(prepared)]
    assert events[-1].cached_tokens >= first.prompt_tokens - 2  # type: ignore[union-attr]


async def test_an_aborted_request_leaves_nothing_broken(llama: Engine) -> None:
    """Nothing of it is kept, and what it began from stays whole."""
    whole, _ = await answer(llama, LONG, max_tokens=20)
    kept = llama.stats().prefix_cache_bytes
    for request_id in ("a", "b"):
        text = LONG if request_id == "a" else LONG + "Hello!"
        prepared = await llama.prepare(a_request(text, request_id=request_id))
        async with aclosing(llama.generate(prepared)) as events:
            while not isinstance(await anext(events), TextDelta):
                pass
    assert llama.stats().prefix_cache_bytes == kept
    again, end = await answer(llama, LONG, max_tokens=20)
    assert (again, end.cached_tokens > 0) == (whole, True)


async def test_prefixes_give_way_to_requests(
    sample_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they never take more than the budget; with room left, prefixes fill it."""
    seen: list[tuple[int, int]] = []
    real_step = ModelBatch.step

    def watched(batch: ModelBatch) -> object:
        outputs = real_step(batch)
        seen.append((batch.kv_bytes, batch.prefix_cache_bytes))
        return outputs

    monkeypatch.setattr(ModelBatch, "step", watched)
    backend = MLXBackend(SchedulerConfig())
    engine = await load(backend, sample_models, LLAMA)
    budget = engine.kv_costs.floor_bytes
    engine.set_kv_budget(budget)
    for i in range(6):
        await asyncio.gather(
            *(answer(engine, f"{i} {LONG}", f"{i}{j}", max_tokens=20) for j in range(3))
        )
    assert max(live + kept for live, kept in seen) <= budget
    assert max(kept for _, kept in seen) > 0
    engine.set_kv_budget(None)
    await answer(engine, LONG, max_tokens=20)
    assert engine.stats().prefix_cache_bytes > 0
    await backend.close()


async def test_dropping_prefixes_gives_their_bytes_back(
    backend: MLXBackend, llama: Engine, sample_models: Path
) -> None:
    """Measured by MLX; of one engine or of all; the next answer is the same."""
    other = await load(backend, sample_models, "qwen3-1m-8bit")
    text, _ = await answer(llama, LONG, max_tokens=20)
    await answer(other, LONG, max_tokens=20)
    kept, others_kept = (one.stats().prefix_cache_bytes for one in (llama, other))
    assert await backend.drop_prefix_caches(llama) >= kept > 0
    assert llama.stats().prefix_cache_bytes == 0
    assert other.stats().prefix_cache_bytes == others_kept
    assert await backend.drop_prefix_caches() >= others_kept > 0
    assert await backend.drop_prefix_caches() == 0
    again, end = await answer(llama, LONG, max_tokens=20)
    assert (again, end.cached_tokens) == (text, 0)


async def test_dropping_prefixes_while_they_are_in_use(backend: MLXBackend, llama: Engine) -> None:
    """A request that began from one has a cache of its own."""
    text, _ = await answer(llama, LONG, max_tokens=40)
    prepared = await llama.prepare(a_request(LONG, max_tokens=40))
    pieces: list[str] = []
    async for event in llama.generate(prepared):
        if isinstance(event, TextDelta):
            if not pieces:
                await backend.drop_prefix_caches()
            pieces.append(event.text)
    assert "".join(pieces) == text


async def test_an_unload_gives_the_prefixes_back_as_well(sample_models: Path) -> None:
    """All that the model had allocated, and nothing is left after it."""
    gc.collect()
    before = mx.get_active_memory()
    backend = MLXBackend(SchedulerConfig())
    engine = await load(backend, sample_models, LLAMA)
    await answer(engine, LONG, max_tokens=20)
    kept = engine.stats().prefix_cache_bytes
    assert kept > 0
    assert await backend.unload(engine) >= engine.weights_bytes + kept
    assert engine.stats().prefix_cache_bytes == 0
    await backend.close()
    assert mx.get_active_memory() == before


async def test_a_step_that_raises_takes_the_prefixes_along(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been for want of memory."""
    await answer(llama, LONG, max_tokens=5)
    real_step = ModelBatch.step

    def failing_step(batch: ModelBatch) -> object:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(ModelBatch, "step", failing_step)
    assert (await answer(llama, LONG))[1].reason is FinishReason.ERROR
    assert llama.stats().prefix_cache_bytes == 0
    monkeypatch.setattr(ModelBatch, "step", real_step)
    assert (await answer(llama, LONG, max_tokens=2))[1].cached_tokens == 0


async def test_short_beginnings_are_not_worth_a_copy(llama: Engine) -> None:
    """All prompts share the template's first tokens."""
    await answer(llama, "Hello!", max_tokens=2)
    assert (await answer(llama, PROMPT, max_tokens=2))[1].cached_tokens == 0


async def test_the_buffer_cache_is_bounded_and_can_be_given_back(sample_models: Path) -> None:
    """By the setting; the process's own limit is restored at the end."""
    found = mx.set_cache_limit(10**6)
    backend = MLXBackend(SchedulerConfig(buffer_cache_limit_bytes=300_000))
    engine = await load(backend, sample_models, LLAMA)
    await answer(engine, LONG, max_tokens=40)
    assert backend.memory().cache_bytes <= 300_000
    held = backend.memory().cache_bytes
    assert await backend.drop_buffer_cache() == held > 0
    assert backend.memory().cache_bytes == 0
    await backend.close()
    assert mx.set_cache_limit(found) == 10**6


async def test_without_a_setting_a_limit_of_mlx_is_only_lowered(sample_models: Path) -> None:
    """To 1 GiB; less stays as it is."""
    found = mx.set_cache_limit(1 << 40)
    for before, during in ((1 << 40, 1 << 30), (1 << 20, 1 << 20)):
        mx.set_cache_limit(before)
        backend = MLXBackend(SchedulerConfig())
        await load(backend, sample_models, LLAMA)
        assert mx.set_cache_limit(during) == during
        await backend.close()
        assert mx.set_cache_limit(found) == before
