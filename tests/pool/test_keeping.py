"""What a pool does by itself and by command: TTL, budget, folders, aliases, a lost thread."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from omlx_tui.engines import Finished, FinishReason
from omlx_tui.pool import (
    EnginePool,
    LoadCancelledError,
    ModelLoadError,
    ModelNotFoundError,
    ModelOptions,
    ModelState,
    PoolOptions,
)
from omlx_tui.pool.events import (
    BudgetChanged,
    EngineThreadDied,
    EstimateOff,
    FolderUnreadable,
    ModelsChanged,
)
from tests.fakes import FakeBackend, ManualClock, a_request
from tests.model_folders import write_model


def resident(pool: EnginePool) -> list[str]:
    return [model.model_id for model in pool.snapshot().models if model.is_resident]


async def fill(pool: EnginePool, clock: ManualClock, *model_ids: str) -> None:
    for model_id in model_ids:
        await pool.get_engine(model_id)
        clock.advance(10)


async def test_a_ttl_runs_from_the_end_of_the_last_request(
    pool: EnginePool, clock: ManualClock
) -> None:
    """In use and pinned ones don't expire; one that has none stays for ever."""
    for model_id in ("a", "b"):
        pool.set_ttl(model_id, 60)
    await fill(pool, clock, "a", "b", "c")
    async with pool.lease("a"):
        clock.advance(1000)
        await pool.expire_idle()
        assert resident(pool) == ["a", "c"]
    clock.advance(59)
    await pool.expire_idle()
    model = pool.snapshot().model("a")
    assert model is not None
    assert model.ttl_left_s == 1
    pool.pin("a")
    clock.advance(10)
    await pool.expire_idle()
    assert "a" in resident(pool)
    pool.unpin("a")
    await pool.expire_idle()
    assert resident(pool) == ["c"]
    assert "idle for 60 s" in pool.events.after(0)[-1].describe()


async def test_options_of_one_model_come_before_those_of_all(
    models: Path, backend: FakeBackend, clock: ManualClock
) -> None:
    """TTL, headroom, context and aliases reach the entry and the engine."""
    options = PoolOptions(
        headroom_share=0.5,
        ttl_s=100,
        models={"a": ModelOptions(ttl_s=0, context_tokens=77)},
        aliases={"small": "a"},
    )
    pool = EnginePool(5000, backend=backend, clock=clock, options=options)
    pool.discover_models(models)
    assert (pool._entries["a"].ttl_s, pool._entries["b"].ttl_s) == (0, 100)
    assert pool._entries["a"].footprint_bytes == 600
    engine = await pool.get_engine("small")
    assert engine.model_id == "a"
    assert engine.context_tokens == 77
    await pool.close()


async def test_a_lower_budget_makes_idle_models_leave(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Coldest first, until it holds; what is in use stays."""
    await fill(pool, clock, "a", "b", "c")
    async with pool.lease("a"):
        await pool.set_budget(1000)
        assert backend.unloads == ["b"]
        await pool.set_budget(400)
        assert backend.unloads == ["b", "c"]
        assert resident(pool) == ["a"]
    told = [e.budget_bytes for e in pool.events.after(0) if isinstance(e, BudgetChanged)]
    assert told == [1000, 400]
    with pytest.raises(ValueError, match="above 0"):
        await pool.set_budget(0)


async def test_folders_are_followed(pool: EnginePool, models: Path, clock: ManualClock) -> None:
    """New, changed and gone ones; whoever is loaded keeps its entry until it is unloaded."""
    await fill(pool, clock, "a")
    entry = pool._entries["a"]
    write_model(models / "new")
    shutil.rmtree(models / "a")
    shutil.rmtree(models / "b")
    await pool.rescan()
    event = pool.events.after(0)[-1]
    assert isinstance(event, ModelsChanged)
    assert (event.added, event.removed) == (("new",), ("a", "b"))
    assert pool._entries["a"] is entry
    assert (entry.state, entry.problem) == (ModelState.READY, "its folder has gone")
    assert "b" not in pool._entries
    await pool.unload("a")
    await pool.rescan()
    assert "a" not in pool._entries
    last = pool.events.last_seq
    await pool.rescan()
    assert pool.events.last_seq == last
    await pool.get_engine("new")


async def test_pins_outlive_a_rescan(pool: EnginePool, models: Path) -> None:
    """A look at the folders changes nothing that the operator has said."""
    pool.pin("a")
    write_model(models / "new")
    await pool.rescan()
    assert pool._entries["a"].is_pinned


async def test_a_repaired_model_can_be_loaded_at_once(
    pool: EnginePool, backend: FakeBackend, models: Path
) -> None:
    """Changed files end the pause after a failed load, and an unservable one becomes servable."""
    backend.load_failures["a"] = "broken"
    with pytest.raises(ModelLoadError):
        await pool.get_engine("a")
    del backend.load_failures["a"]
    config = models / "a" / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "repaired": True}))
    write_model(models / "odd", model_type="no_such_type")
    await pool.rescan()
    assert not pool._entries["odd"].is_servable
    (models / "odd" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    await pool.rescan()
    await pool.get_engine("a")
    await pool.unload("a")
    assert pool._entries["odd"].is_servable


async def test_a_root_that_goes_away_is_told_once(pool: EnginePool, models: Path) -> None:
    """One event per transition."""
    away = models.with_name("away")
    models.rename(away)
    for _ in range(3):
        await pool.rescan()
    told = [e for e in pool.events.after(0) if isinstance(e, FolderUnreadable)]
    assert len(told) == 1
    assert pool._entries == {}
    away.rename(models)
    await pool.rescan()
    assert len(pool._entries) == 5


async def test_an_estimate_that_was_far_off_is_an_event(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """By more than 5 %, once."""
    backend.measured_bytes.update({"a": 500, "b": 410})
    for model_id in ("a", "b"):
        await pool.get_engine(model_id)
    told = [e.model_id for e in pool.events.after(0) if isinstance(e, EstimateOff)]
    assert told == ["a"]


async def test_when_the_engines_are_lost_the_pool_recovers(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Requests have their ends, health is red, nothing is counted; the next request loads anew."""
    await fill(pool, clock, "a", "b")
    backend.engines["a"].decode.close()

    async def talk() -> FinishReason | None:
        async with aclosing(pool.generate("a", a_request(), client="t")) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.reason
        return None

    talking = asyncio.create_task(talk())
    while not backend.engines["a"].active:
        await asyncio.sleep(0)
    backend.lose_engines("out of memory")
    assert await talking is FinishReason.ABORTED
    assert pool._current_model_memory == 0
    assert "out of memory" in pool.snapshot().problem
    event = next(e for e in pool.events.after(0) if isinstance(e, EngineThreadDied))
    assert event.lost == ("b", "a")
    await pool.get_engine("a")
    assert pool.snapshot().problem == ""
    assert pool._entries["a"].leases == 0


async def test_a_pool_on_mlx_outlives_its_thread(
    sample_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real thread is killed in the middle of an answer and of a load; then all goes on."""
    from omlx_tui.engines import worker as worker_module

    pool = EnginePool(20_000_000)
    pool.discover_models(sample_models)
    await pool.get_engine("llama-1m-fp32")
    real_step = worker_module.MLXWorker.step

    def dying_step(worker: object) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr(worker_module.MLXWorker, "step", dying_step)
    with pytest.raises(LoadCancelledError, match="killed"):
        await pool.get_engine("qwen3-1m-8bit")
    assert pool._current_model_memory == 0
    assert "killed" in pool.snapshot().problem
    monkeypatch.setattr(worker_module.MLXWorker, "step", real_step)
    for model_id in ("llama-1m-fp32", "qwen3-1m-8bit"):
        await pool.get_engine(model_id)
    assert pool.snapshot().problem == ""
    await pool.close()


async def test_an_unknown_name_is_no_alias(pool: EnginePool) -> None:
    """Commands on it say so."""
    with pytest.raises(ModelNotFoundError):
        pool.set_ttl("nobody", 5)


async def test_a_model_that_comes_back_keeps_what_was_said_of_it(
    pool: EnginePool, models: Path
) -> None:
    """Pin and TTL; and one that was pinned before it was ever there is pinned when it comes."""
    pool.pin("a")
    pool.set_ttl("a", 77)
    pool.pin_when_found("new")
    (models / "a").rename(models / ".a")
    await pool.rescan()
    assert "a" not in pool._entries
    (models / ".a").rename(models / "a")
    write_model(models / "new")
    await pool.rescan()
    assert (pool._entries["a"].is_pinned, pool._entries["a"].ttl_s) == (True, 77)
    assert pool._entries["new"].is_pinned


async def test_files_that_change_while_a_model_is_loaded_count_from_its_next_load(
    pool: EnginePool, models: Path, clock: ManualClock
) -> None:
    """What is in memory keeps its measured size; after the unload the new files' size counts."""
    await fill(pool, clock, "a")
    shutil.rmtree(models / "a")
    write_model(models / "a", weights_bytes=800)
    await pool.rescan()
    entry = pool._entries["a"]
    assert (entry.weights_bytes, entry.problem) == (400, "")
    await pool.unload("a")
    assert (entry.weights_bytes, entry.weights_measured) == (800, False)


async def test_who_waits_for_a_model_that_goes_away_is_told(
    pool: EnginePool, models: Path, clock: ManualClock
) -> None:
    """Its entry is gone while a caller stands behind a drain: no orphan is loaded."""
    async with pool.lease("a"):
        drain = asyncio.create_task(pool.drain("a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        late = pool.hold("a", timeout=30)
        shutil.rmtree(models / "a")
    await drain
    await pool.rescan()
    with pytest.raises(ModelNotFoundError):
        async for _ in late.loading():
            pass
    late.__exit__(None, None, None)
    assert pool._current_model_memory == 0


async def test_engines_lost_while_a_load_ends_are_no_ready_model(
    pool: EnginePool, backend: FakeBackend
) -> None:
    """The load had its engine, the thread died before the pool had settled it."""
    loading = asyncio.create_task(pool.get_engine("a"))
    while not (pool._entries["a"].attempt and pool._entries["a"].has_room):
        await asyncio.sleep(0)
    attempt = pool._entries["a"].attempt
    assert attempt is not None
    assert attempt.task is not None
    while not attempt.task.done():
        await asyncio.sleep(0)
    backend.lose_engines("killed")
    with pytest.raises(LoadCancelledError, match="killed"):
        await loading
    assert pool._entries["a"].state is ModelState.UNLOADED
    assert (await pool.get_engine("a")).model_id == "a"


async def test_an_engine_loaded_in_vain_that_does_not_go_stays_counted(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """Measured too large, and its unload fails: failed, with its bytes in the ledger."""
    pool.pin("b")
    pool.pin("c")
    await fill(pool, clock, "b", "c")
    backend.measured_bytes["a"] = 600
    backend.unload_failures["a"] = "stuck"
    with pytest.raises(ModelLoadError, match="stuck"):
        await pool.get_engine("a")
    entry = pool._entries["a"]
    assert (entry.state, entry.held_bytes) == (ModelState.FAILED, 750)


async def test_a_lowered_budget_is_kept_as_models_fall_idle(
    pool: EnginePool, backend: FakeBackend, clock: ManualClock
) -> None:
    """What was in use then leaves at the next round of housekeeping."""
    await fill(pool, clock, "b")
    async with pool.lease("a"), pool.lease("b"), pool.lease("c"):
        await pool.set_budget(1000)
        assert backend.unloads == []
        clock.advance(1)
    await pool.expire_idle()
    assert len(backend.unloads) == 1
    assert pool._current_model_memory == 1000


async def test_an_aliased_request_is_counted_for_its_model(
    models: Path, backend: FakeBackend
) -> None:
    """In the records, the rates and the events it has the model's own id."""
    pool = EnginePool(5000, backend=backend, options=PoolOptions(aliases={"small": "a"}))
    pool.discover_models(models)
    async with aclosing(pool.generate("small", a_request(), client="t")) as events:
        await anext(events)
        (request,) = pool.snapshot().requests
        assert request.model_id == "a"
    await pool.close()
