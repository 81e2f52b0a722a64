"""The reference behaviour again, on real models and MLX's own memory figures.

Footprints (weights and a quarter), as held on the CPU: qwen3 1.4 MB, mixtral 1.8, gemma3 2.5,
llama 4.3, phi3 5.1. Budgets are chosen around these.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import mlx.core as mx
import pytest

from omlx_tui.engines import Finished, FinishReason, SchedulerConfig, TextDelta
from omlx_tui.pool import EnginePool, InsufficientMemoryError, LoadCancelledError, ModelState
from omlx_tui.pool.events import ModelEvicted
from tests.fakes import a_request

GEMMA, LLAMA, MIXTRAL, PHI, QWEN = (
    "gemma3-2.6m-4bit",
    "llama-1m-fp32",
    "mixtral-4e-4bit",
    "phi3-1m-bf16",
    "qwen3-1m-8bit",
)
PROMPT = "Tell me a story about a fox and a lantern."


@pytest.fixture
async def pool(sample_models: Path) -> AsyncIterator[EnginePool]:
    """Room for llama and gemma3, or for mixtral, qwen3 and gemma3 …, never for all."""
    ticks = itertools.count(1)  # every use is later than the one before, on any machine
    pool = EnginePool(7_000_000, SchedulerConfig(), clock=lambda: float(next(ticks)))
    pool.discover_models(sample_models)
    yield pool
    await pool.close()


def resident(pool: EnginePool) -> list[str]:
    return [model.model_id for model in pool.snapshot().models if model.is_resident]


def evicted(pool: EnginePool) -> list[str]:
    return [e.model_id for e in pool.events.after(0) if isinstance(e, ModelEvicted)]


async def test_the_reference_snippet_works_verbatim(sample_models: Path) -> None:
    """The lines that users of the reference know, with this project's import path."""
    pool = EnginePool(max_model_memory=4 * 1024**3, scheduler_config=SchedulerConfig())
    pool.discover_models(str(sample_models), pinned_models=[LLAMA])
    engine = await pool.get_engine(QWEN)
    listed = []
    for entry_id, entry in pool._entries.items():
        listed.append((entry_id, entry.last_access > 0, entry.is_pinned))
    assert engine.has_active_requests() is False
    assert (QWEN, True, False) in listed
    assert (LLAMA, False, True) in listed
    await pool.close()


async def test_estimates_are_exact(pool: EnginePool) -> None:
    """Every sample's size from its headers is what MLX measures after the load."""
    for model_id, entry in pool._entries.items():
        estimated = entry.weights_bytes
        await pool.get_engine(model_id)
        assert entry.weights_measured
        assert entry.weights_bytes == estimated, model_id


async def test_last_access_is_refreshed_and_decides_the_victim(pool: EnginePool) -> None:
    """gemma3 was loaded first but used last: qwen3 goes, then mixtral."""
    for model_id in (GEMMA, QWEN, MIXTRAL, GEMMA):
        await pool.get_engine(model_id)
    await pool.get_engine(LLAMA)
    assert evicted(pool) == [QWEN, MIXTRAL]
    assert resident(pool) == [LLAMA, GEMMA]


async def test_the_check_comes_before_the_load_and_counts_headroom(
    pool: EnginePool, sample_models: Path
) -> None:
    """Both weights would fit together, not their headroom: MLX never holds both."""
    llama, gemma = pool._entries[LLAMA], pool._entries[GEMMA]
    pool.max_model_memory = llama.weights_bytes + gemma.weights_bytes + 100_000
    await pool.get_engine(GEMMA)
    mx.reset_peak_memory()
    await pool.get_engine(LLAMA)
    assert evicted(pool) == [GEMMA]
    assert mx.get_peak_memory() < llama.weights_bytes + gemma.weights_bytes


async def test_a_pinned_model_stays(pool: EnginePool) -> None:
    """Though it be the coldest."""
    pool.pin(GEMMA)
    for model_id in (GEMMA, QWEN, MIXTRAL, LLAMA):
        await pool.get_engine(model_id)
    assert GEMMA in resident(pool)
    assert evicted(pool) == [QWEN, MIXTRAL]


async def test_a_generating_model_stays_and_goes_on(pool: EnginePool) -> None:
    """The coldest one, in the middle of an answer: another one leaves, its answer is whole."""

    async def talk() -> Finished:
        request = a_request(PROMPT, max_tokens=300)
        async with aclosing(pool.generate(GEMMA, request, client="test")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    talking.set()
                if isinstance(event, Finished):
                    return event
        raise AssertionError("no end")

    talking = asyncio.Event()
    answer = asyncio.create_task(talk())
    await talking.wait()
    for model_id in (QWEN, MIXTRAL):
        await pool.get_engine(model_id)
    pool._entries[GEMMA].last_access = 0.5
    await pool.get_engine(LLAMA)
    assert evicted(pool) == [QWEN, MIXTRAL]
    end = await answer
    assert end.reason in (FinishReason.LENGTH, FinishReason.STOP)


async def test_what_an_eviction_frees_is_measured_by_mlx(pool: EnginePool) -> None:
    """The event's bytes are what MLX's active memory fell by, and the new model's are in."""
    await pool.get_engine(PHI)
    before = mx.get_active_memory()
    await pool.unload(PHI)
    assert mx.get_active_memory() <= before - pool._entries[PHI].weights_bytes
    await pool.get_engine(PHI)
    await pool.get_engine(LLAMA)
    (event,) = [e for e in pool.events.after(0) if isinstance(e, ModelEvicted)]
    weights_bytes = pool._entries[PHI].weights_bytes
    assert weights_bytes <= event.freed_bytes <= weights_bytes + 4096
    assert mx.get_active_memory() == pytest.approx(pool._entries[LLAMA].weights_bytes, abs=4096)


async def test_several_leave_for_one_in_lru_order(pool: EnginePool) -> None:
    """phi3 needs the room of three."""
    for model_id in (MIXTRAL, QWEN, GEMMA):
        await pool.get_engine(model_id)
    await pool.get_engine(PHI)
    assert evicted(pool) == [MIXTRAL, QWEN, GEMMA]
    assert resident(pool) == [PHI]


async def test_when_nothing_can_go_it_is_an_error_and_nothing_went(pool: EnginePool) -> None:
    """Numbers in the error, every model still there, every byte still in MLX."""
    pool.pin(GEMMA)
    pool.pin(MIXTRAL)
    for model_id in (GEMMA, MIXTRAL, QWEN):
        await pool.get_engine(model_id)
    before = mx.get_active_memory()
    with pytest.raises(InsufficientMemoryError) as failure:
        await pool.get_engine(PHI)
    assert set(failure.value.blocking) == {GEMMA, MIXTRAL}
    assert failure.value.needed_bytes == pool._entries[PHI].footprint_bytes
    assert failure.value.freeable_bytes == pool._entries[QWEN].footprint_bytes
    assert evicted(pool) == []
    assert resident(pool) == [QWEN, MIXTRAL, GEMMA]
    assert mx.get_active_memory() == before


async def test_a_cancelled_load_leaves_no_byte(sample_models: Path) -> None:
    """The only waiter leaves in the middle: reservation and memory are back."""
    pool = EnginePool(7_000_000, SchedulerConfig(load_slice_bytes=64 * 1024))
    pool.discover_models(sample_models)
    await pool.get_engine(QWEN)
    before = mx.get_active_memory()
    with pool.hold(PHI) as lease:
        loading = lease.loading()
        async for progress in loading:
            if progress.done_bytes:
                break
        await loading.aclose()
    await pool._until(lambda: pool._entries[PHI].state is ModelState.UNLOADED)
    assert mx.get_active_memory() <= before
    assert pool._current_model_memory == pool._entries[QWEN].footprint_bytes
    await pool.close()


async def test_fifty_swaps_return_to_the_base(pool: EnginePool) -> None:
    """llama, phi3, llama …: no model, no cache, no closure stays behind."""
    await pool.get_engine(LLAMA)
    base = mx.get_active_memory()
    for _ in range(25):
        await pool.get_engine(PHI)
        await pool.get_engine(LLAMA)
    assert len(evicted(pool)) == 50
    assert mx.get_active_memory() == base


async def test_sixty_four_callers_cause_one_load(pool: EnginePool) -> None:
    """One reservation, one engine."""
    engines = await asyncio.gather(*(pool.get_engine(QWEN) for _ in range(64)))
    assert len(set(map(id, engines))) == 1
    assert pool._current_model_memory == pool._entries[QWEN].footprint_bytes


async def test_the_operator_ends_a_load(sample_models: Path) -> None:
    """``unload`` of a loading model cancels it for its waiter."""
    pool = EnginePool(7_000_000, SchedulerConfig(load_slice_bytes=64 * 1024))
    pool.discover_models(sample_models)
    waiting = asyncio.create_task(pool.get_engine(PHI))
    await pool._until(lambda: pool._entries[PHI].state is ModelState.LOADING)
    await pool.unload(PHI)
    with pytest.raises(LoadCancelledError):
        await waiting
    await pool.close()


async def test_memory_is_zero_after_close(pool: EnginePool) -> None:
    """Nothing resident, and MLX holds what it held before."""
    before = mx.get_active_memory()
    for model_id in (GEMMA, QWEN):
        await pool.get_engine(model_id)
    await pool.close()
    assert mx.get_active_memory() == before
    assert resident(pool) == []
