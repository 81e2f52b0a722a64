"""The memory enforcer: pressure from an injected reading, relief by the real pool."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import mlx.core as mx
import pytest

from omlx_tui.engines import Finished, FinishReason, SchedulerConfig
from omlx_tui.pool import EnginePool, LoadCancelledError
from omlx_tui.pool.enforcer import (
    EnforcerLimits,
    PressureLevel,
    ProcessMemoryEnforcer,
    pressure_level,
)
from omlx_tui.pool.events import ModelUnloaded, PressureChanged
from omlx_tui.pool.process import (
    ProcessMeter,
    ProcessReading,
    default_process_limit_bytes,
    trim_heap,
)
from tests.fakes import FakeBackend, ManualClock, a_request

LIMITS = EnforcerLimits(process_limit_bytes=1000, min_available_bytes=100)
NORMAL, SOFT, HARD = PressureLevel.NORMAL, PressureLevel.SOFT, PressureLevel.HARD


@pytest.mark.parametrize(
    ("process_bytes", "available_bytes", "current", "level"),
    [
        (850, 500, NORMAL, NORMAL),
        (851, 500, NORMAL, SOFT),
        (951, 500, NORMAL, HARD),
        (810, 500, SOFT, SOFT),  # above 850 - 50: not released yet
        (800, 500, SOFT, NORMAL),
        (910, 500, HARD, HARD),
        (900, 500, HARD, SOFT),
        (0, 99, NORMAL, SOFT),
        (0, 49, NORMAL, HARD),
        (0, 104, SOFT, SOFT),
        (0, 105, SOFT, NORMAL),
    ],
)
def test_levels_rise_at_a_mark_and_fall_below_it(
    process_bytes: int, available_bytes: int, current: PressureLevel, level: PressureLevel
) -> None:
    """The process limit and the machine's free memory, each with hysteresis."""
    reading = ProcessReading(process_bytes=process_bytes, available_bytes=available_bytes)
    assert pressure_level(reading, LIMITS, current) is level


def test_the_default_limit_leaves_8_gb_or_half() -> None:
    """Sensible on small machines too."""
    assert default_process_limit_bytes(64_000_000_000) == 56_000_000_000
    assert default_process_limit_bytes(8_000_000_000) == 4_000_000_000


class Machine:
    """A process that holds what the fake backend holds, and something beside it."""

    def __init__(self, pool: EnginePool, backend: FakeBackend, **limits: object) -> None:
        self.backend = backend
        self.beside_bytes = 0
        self.pool = pool
        self.levels: list[PressureLevel] = []
        facts = {"process_limit_bytes": 2000, "min_available_bytes": 1, **limits}
        self.enforcer = ProcessMemoryEnforcer(
            pool, EnforcerLimits(**facts), self.read, self.on_change
        )

    def read(self) -> ProcessReading:
        held = self.backend.memory().active_bytes + self.backend.memory().cache_bytes
        return ProcessReading(process_bytes=held + self.beside_bytes, available_bytes=1_000_000)

    def on_change(self, level: PressureLevel, reading: ProcessReading) -> None:
        self.levels.append(level)
        self.pool.note_pressure(level, reading, limit_bytes=2000)


async def fill(pool: EnginePool, clock: ManualClock, *model_ids: str) -> None:
    for model_id in model_ids:
        await pool.get_engine(model_id)
        clock.advance(10)


def unloaded(pool: EnginePool) -> list[str]:
    return [e.model_id for e in pool.events.after(0) if isinstance(e, ModelUnloaded)]


async def test_no_pressure_touches_nothing(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Below the soft mark nothing happens, and nothing is told."""
    machine = Machine(pool, backend)
    await fill(pool, clock, "a", "b", "c")
    await machine.enforcer.check()
    assert unloaded(pool) == machine.levels == []


async def test_the_buffer_cache_goes_first_and_no_model_for_it(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Pressure by MLX's cache alone evicts nobody."""
    machine = Machine(pool, backend)
    await fill(pool, clock, "a", "b")
    backend.buffer_cache_bytes = 1000
    await machine.enforcer.check()
    assert backend.buffer_cache_bytes == 0
    assert unloaded(pool) == []
    assert machine.levels == [SOFT, NORMAL]


async def test_models_go_in_lru_order_and_no_more_than_needed(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Pinned and used ones stay; one event per transition, whatever number of looks."""
    machine = Machine(pool, backend)
    pool.pin("b")
    await fill(pool, clock, "a", "b", "c")
    machine.beside_bytes = 1000
    await machine.enforcer.check()
    assert unloaded(pool) == ["a", "c"]
    for _ in range(5):
        await machine.enforcer.check()
    told = [e.level for e in pool.events.after(0) if isinstance(e, PressureChanged)]
    assert told == ["hard", "soft", "normal"]


async def test_loads_are_cancelled_when_nothing_else_is_left(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """The one that came last; who waits for it is told why."""
    machine = Machine(pool, backend)
    backend.load_gate.close()
    loading = asyncio.create_task(pool.get_engine("a"))
    while not backend.load_gate.waiting:
        await asyncio.sleep(0)
    machine.beside_bytes = 1900
    await machine.enforcer.check()
    with pytest.raises(LoadCancelledError, match="memory pressure"):
        await loading


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_requests_are_aborted_only_at_the_hard_mark_and_if_allowed(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock, is_allowed: bool
) -> None:
    """The newest request of the coldest busy model, with its terminal event."""
    machine = Machine(pool, backend, allow_abort=is_allowed)
    await fill(pool, clock, "a", "b")
    for engine in backend.engines.values():
        engine.decode.close()

    async def talk(model_id: str, request_id: str) -> FinishReason | None:
        request = a_request(request_id=request_id)
        async with aclosing(pool.generate(model_id, request, client="t")) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.reason
        return None

    talks = {}
    for model_id, request_id in (("a", "old"), ("a", "new"), ("b", "other")):
        talks[request_id] = asyncio.create_task(talk(model_id, request_id))
        while not pool._requests.is_live(request_id) or not backend.engines[model_id].active:
            await asyncio.sleep(0)
        clock.advance(1)
    for _ in range(20):
        await asyncio.sleep(0)
    machine.beside_bytes = 1150  # 1950 in all: hard; nothing but requests can go
    real_abort = backend.engines["a"].abort

    def abort(request_id: str) -> None:
        machine.beside_bytes -= 200  # what its KV cache took
        real_abort(request_id)

    backend.engines["a"].abort = abort  # type: ignore[method-assign]
    await machine.enforcer.check()
    assert talks["new"].done() is is_allowed
    assert not talks["old"].done()
    assert not talks["other"].done()
    for engine in backend.engines.values():
        engine.decode.open()
    reasons = {request_id: await task for request_id, task in talks.items()}
    assert reasons["new"] is (FinishReason.ABORTED if is_allowed else FinishReason.STOP)
    assert reasons["old"] is FinishReason.STOP


async def test_pressure_that_comes_and_goes_leaves_no_latch(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Afterwards the models are usable or unloaded, never busy for ever."""
    machine = Machine(pool, backend)
    await fill(pool, clock, "a")
    for beside_bytes in (5000, 0, 5000, 0):
        machine.beside_bytes = beside_bytes
        await machine.enforcer.check()
    await fill(pool, clock, "a", "b")
    assert machine.enforcer.level is NORMAL


async def test_real_mlx_memory_over_a_real_limit(sample_models: Path) -> None:
    """Two real models, a limit between them, MLX's own figures: the colder one goes."""
    pool = EnginePool(20_000_000, SchedulerConfig())
    pool.discover_models(sample_models)
    await pool.get_engine("phi3-1m-bf16")
    meter = ProcessMeter(pool.memory)
    meter.read()
    await pool.get_engine("llama-1m-fp32")
    await pool.give_back_buffer_cache()
    held = meter.read().process_bytes
    limits = EnforcerLimits(
        process_limit_bytes=held,
        soft_share=1 - 1e6 / held,
        hard_share=1.0,
        min_available_bytes=1,
        release_share=0,
    )
    enforcer = ProcessMemoryEnforcer(pool, limits, meter.read, lambda level, reading: None)
    before = mx.get_active_memory()
    await enforcer.check()
    assert unloaded(pool) == ["phi3-1m-bf16"]
    assert mx.get_active_memory() <= before - pool._entries["phi3-1m-bf16"].weights_bytes
    assert enforcer.level is NORMAL
    await pool.close()


def test_the_heap_can_be_trimmed_anywhere() -> None:
    """Where the C library can't, nothing happens."""
    trim_heap()
