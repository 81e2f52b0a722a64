"""Random work on real models: whatever was asked in whatever order, nothing is left at the end.

The property machine's counterpart on MLX (``test_properties.py`` runs on the fake backend).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path

import mlx.core as mx
import pytest

from omlx_tui.engines import EngineError, Finished, SchedulerConfig
from omlx_tui.pool import EnginePool, PoolError, PoolOptions
from tests.fakes import a_request

BUDGET_BYTES = 8_000_000
PROMPTS = ("Hello!", "What is the capital of France?", "Tell me a story about a fox.")


@pytest.fixture
async def pool(sample_models: Path) -> AsyncIterator[EnginePool]:
    config = SchedulerConfig(load_slice_bytes=256 * 1024)
    pool = EnginePool(BUDGET_BYTES, config, options=PoolOptions(wait_timeout_s=1))
    pool.discover_models(sample_models)
    yield pool
    await pool.close()


class Crowd:
    """Clients and an operator, driven by one seed."""

    def __init__(self, pool: EnginePool, seed: int) -> None:
        self.pool = pool
        self.random = random.Random(seed)
        self.models = sorted(pool._entries)
        self.tasks: set[asyncio.Task[int]] = set()
        self.asked = 0

    def start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[arg-type]
        self.tasks.add(task)

    async def ask(self) -> int:
        """One client, which may go away at any event; returns the ends it saw, or 1 if it went."""
        self.asked += 1
        request = a_request(
            self.random.choice(PROMPTS),
            request_id=f"r{self.asked}",
            max_tokens=self.random.randint(1, 12),
        )
        patience = self.random.choice((1, 2, 4, 8, 100, 100))
        ends = 0
        events = self.pool.generate(self.random.choice(self.models), request, client="c")
        try:
            async with aclosing(events):
                async for event in events:
                    ends += isinstance(event, Finished)
                    patience -= 1
                    if patience == 0 and not ends:
                        return 1
        except (PoolError, EngineError):
            ends += 1
        return ends

    async def command(self) -> int:
        """One word of the operator."""
        pool, model_id = self.pool, self.random.choice(self.models)
        with suppress(PoolError):
            match self.random.randrange(8):
                case 0:
                    pool.pin(model_id)
                case 1 | 2:
                    for each in self.models:
                        pool.unpin(each)
                case 3:
                    await pool.unload(model_id, force=self.random.random() < 0.5)
                case 4:
                    await pool.drain(model_id)
                case 5:
                    await pool.set_budget(self.random.choice((6_000_000, BUDGET_BYTES)))
                case 6:
                    await pool.rescan()
                case _:
                    await pool.give_back_prefix_caches()
        return 1


async def nothing_is_left(pool: EnginePool, before_bytes: int) -> None:
    """Leases, waiters, requests, tasks: none; after closing, MLX holds what it held before."""
    await pool._until(lambda: all(entry.leases == 0 for entry in pool._entries.values()))
    snapshot = pool.snapshot()
    assert snapshot.requests == ()
    assert len(pool._line) == 0
    assert not any(entry.is_active() for entry in pool._entries.values())
    assert snapshot.held_bytes <= BUDGET_BYTES
    await pool.close()
    assert pool._current_model_memory == 0
    assert pool._tasks == set()
    assert mx.get_active_memory() == before_bytes


async def test_five_hundred_random_operations(pool: EnginePool) -> None:
    """Requests, cancels and commands, up to a dozen at once; each request has exactly one end."""
    before_bytes = mx.get_active_memory()
    crowd = Crowd(pool, seed=20261129)
    for _ in range(500):
        crowd.start(crowd.ask() if crowd.random.random() < 0.75 else crowd.command())
        if len(crowd.tasks) >= 12:
            running = [task for task in crowd.tasks if not task.done()]
            if running and crowd.random.random() < 0.2:
                crowd.random.choice(running).cancel()
            done, crowd.tasks = await asyncio.wait(crowd.tasks, return_when=asyncio.FIRST_COMPLETED)
            assert all(task.cancelled() or task.result() == 1 for task in done)
        assert pool._current_model_memory <= BUDGET_BYTES * 2  # KV caches of models in use
    for model_id in crowd.models:
        pool.unpin(model_id)
    await pool.set_budget(BUDGET_BYTES)
    done, _ = await asyncio.wait(crowd.tasks)
    assert all(task.cancelled() or task.result() == 1 for task in done)
    await nothing_is_left(pool, before_bytes)


async def test_a_thousand_random_cancels(pool: EnginePool) -> None:
    """In any phase: waiting, loading, tokenising, prefilling, decoding. Nothing leaks."""
    before_bytes = mx.get_active_memory()
    crowd = Crowd(pool, seed=7)
    for _ in range(100):
        clients = [asyncio.ensure_future(crowd.ask()) for _ in range(10)]
        for client in clients:
            for _ in range(crowd.random.choice((0, 1, 3, 10, 100, 300))):
                await asyncio.sleep(0)
            client.cancel()
        await asyncio.wait(clients)
    await nothing_is_left(pool, before_bytes)
