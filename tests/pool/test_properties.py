"""What must always hold, whatever is asked in whatever order (docs/architecture.md lists it).

A rule-based machine drives a pool over the fake backend: requests start, stall, go on, are
cancelled; loads fail; the operator pins and unloads. After every rule the invariants are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from omlx_tui.engines import EngineError, Finished
from omlx_tui.pool import EnginePool, ModelState, PoolError, PoolOptions
from omlx_tui.pool.events import LoadStarted, PoolEvent
from omlx_tui.pool.eviction import lru_order
from tests.fakes import FakeBackend, ManualClock, a_request
from tests.model_folders import write_model

SIZES = {"a": 400, "b": 400, "c": 800, "d": 1200, "huge": 9000}
BUDGET_BYTES = 1600

model_ids = st.sampled_from(sorted(SIZES))


class PoolMachine(RuleBasedStateMachine):
    """One pool, many clients, an operator, and faults."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        for model_id, weights_bytes in SIZES.items():
            write_model(Path(self.folder.name) / model_id, weights_bytes=weights_bytes)
        self.clock = ManualClock()
        self.backend = FakeBackend(slices=2)
        self.pool = EnginePool(
            BUDGET_BYTES,
            backend=self.backend,
            clock=self.clock,
            options=PoolOptions(max_waiting=4, wait_timeout_s=1000),
        )
        self.pool.discover_models(self.folder.name)
        self.pool.events.subscribe(self.check_decision)
        self.requests: list[asyncio.Task[Any]] = []
        self.started = 0

    def check_decision(self, event: PoolEvent) -> None:
        """When a load is decided, each victim is nobody's, and they come in LRU order."""
        if isinstance(event, LoadStarted):
            victims = [self.pool._entries[model_id] for model_id in event.victims]
            assert not any(victim.is_pinned for victim in victims)
            idle = [victim for victim in victims if victim.is_idle()]
            assert victims == [*lru_order(idle), *lru_order(v for v in victims if v not in idle)]

    def turn(self, times: int = 1) -> None:
        async def some() -> None:
            for _ in range(times):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())

    async def _serve(self, model_id: str, request_id: str) -> int:
        """One client; returns how many terminal events it saw (an error is one)."""
        ends = 0
        request = a_request("one two three", request_id=request_id)
        try:
            async with contextlib.aclosing(
                self.pool.generate(model_id, request, client="c")
            ) as events:
                async for event in events:
                    ends += isinstance(event, Finished)
        except (PoolError, EngineError):
            ends += 1
        return ends

    @rule(model_id=model_ids)
    def request(self, model_id: str) -> None:
        self.started += 1
        work = self._serve(model_id, f"r{self.started}")
        self.requests.append(self.loop.create_task(work))
        self.turn()

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        running = [task for task in self.requests if not task.done()]
        if running:
            data.draw(st.sampled_from(running)).cancel()
            self.turn()

    @rule(times=st.integers(1, 12), seconds=st.integers(0, 5))
    def let_go_on(self, times: int, seconds: int) -> None:
        self.clock.advance(seconds)
        self.turn(times)

    @rule(is_open=st.booleans())
    def load_gate(self, is_open: bool) -> None:
        self.backend.load_gate.open() if is_open else self.backend.load_gate.close()
        self.turn()

    @rule(is_open=st.booleans())
    def unload_gate(self, is_open: bool) -> None:
        self.backend.unload_gate.open() if is_open else self.backend.unload_gate.close()
        self.turn()

    @rule(model_id=model_ids, is_open=st.booleans())
    def decode_gate(self, model_id: str, is_open: bool) -> None:
        if engine := self.backend.engines.get(model_id):
            engine.decode.open() if is_open else engine.decode.close()
            self.turn()

    @rule(model_id=model_ids, fails=st.booleans())
    def load_failure(self, model_id: str, fails: bool) -> None:
        if fails:
            self.backend.load_failures[model_id] = "broken"
        else:
            self.backend.load_failures.pop(model_id, None)

    @rule(model_id=model_ids, extra=st.integers(-100, 200))
    def another_size(self, model_id: str, extra: int) -> None:
        self.backend.measured_bytes[model_id] = SIZES[model_id] + extra

    @rule(model_id=model_ids)
    def pin(self, model_id: str) -> None:
        if model_id in self.pool._entries:
            self.pool.pin(model_id)

    @rule(model_id=model_ids)
    def unpin(self, model_id: str) -> None:
        if model_id in self.pool._entries:
            self.pool.unpin(model_id)

    @rule(model_id=model_ids, force=st.booleans())
    def unload(self, model_id: str, force: bool) -> None:
        self.start(self.pool.unload(model_id, force=force))

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a command of the operator beside everything else."""

        async def command() -> int:
            with contextlib.suppress(PoolError):
                await work
            return 1

        self.requests.append(self.loop.create_task(command()))
        self.turn()

    @rule(model_id=model_ids)
    def drain(self, model_id: str) -> None:
        self.start(self.pool.drain(model_id))

    @rule(budget_bytes=st.sampled_from((800, 1200, BUDGET_BYTES)))
    def change_budget(self, budget_bytes: int) -> None:
        self.start(self.pool.set_budget(budget_bytes))

    @rule(may_abort=st.booleans())
    def pressure(self, may_abort: bool) -> None:
        self.start(self.relieve(may_abort=may_abort))

    async def relieve(self, *, may_abort: bool) -> None:
        """As the enforcer would."""
        await self.pool.evict_for_pressure()
        if may_abort:
            await self.pool.cancel_newest_load()
            await self.pool.abort_newest_request_of_coldest()

    @rule(seconds=st.integers(1, 100))
    def expire(self, seconds: int) -> None:
        self.pool.set_ttl("a", seconds)
        self.start(self.pool.expire_idle())

    @rule(is_there=st.booleans())
    def rescan(self, is_there: bool) -> None:
        folder = Path(self.folder.name)
        here, away = folder / "b", folder / ".b"
        if is_there and away.exists():
            away.rename(here)
        elif not is_there and here.exists():
            here.rename(away)
        self.pool._follow(self.pool._catalogue.look())

    @rule()
    def lose_engines(self) -> None:
        self.backend.lose_engines("killed")
        self.turn()

    @invariant()
    def the_budget_holds(self) -> None:
        if not hasattr(self, "pool"):
            return
        entries = self.pool._entries.values()
        # A model that turns out larger than its files said is there before anybody can know.
        overshoot = sum(
            max(0, self.backend.measured_bytes.get(m, 0) - SIZES[m]) * 5 // 4 + 1 for m in SIZES
        )
        # A lowered budget binds loads at once; models in use may stay above it.
        assert sum(entry.claimed_bytes for entry in entries) <= BUDGET_BYTES + overshoot
        assert self.pool._current_model_memory <= BUDGET_BYTES + overshoot
        assert self.backend.active_bytes <= BUDGET_BYTES + overshoot

    @invariant()
    def the_counts_agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        for entry in self.pool._entries.values():
            assert entry.leases >= 0
            assert (entry.state is ModelState.LOADING) == (entry.attempt is not None)
            if entry.state in (ModelState.READY, ModelState.DRAINING, ModelState.UNLOADING):
                assert entry.engine is not None
            if entry.state is ModelState.DRAINING:
                assert not (entry.is_pinned and entry.draining_for)
                wanted_by = self.pool._entries.get(entry.draining_for or "")
                assert wanted_by is None or wanted_by.state is ModelState.LOADING
        snapshot = self.pool.snapshot()
        assert snapshot.held_bytes == sum(model.held_bytes for model in snapshot.models)
        live = sum(not task.done() for task in self.requests)
        assert len(snapshot.requests) <= live
        assert len(self.pool._line) <= 4

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.backend.load_gate.open()
        self.backend.unload_gate.open()
        self.backend.load_failures.clear()
        for engine in self.backend.engines.values():
            engine.decode.open()
        for model_id in tuple(self.pool._entries):
            self.pool.unpin(model_id)
        self.pool.max_model_memory = BUDGET_BYTES
        self.pool._announce_change()
        self.loop.run_until_complete(self.finish())
        self.loop.close()
        self.folder.cleanup()

    async def finish(self) -> None:
        """Everything ends, each client with exactly one end, and nothing is left."""
        if self.requests:
            done, pending = await asyncio.wait(self.requests, timeout=5)
            assert not pending, "somebody waits for ever"
            assert all(task.cancelled() or task.result() == 1 for task in done)
        assert all(entry.leases == 0 for entry in self.pool._entries.values())
        await self.pool.close()
        assert self.pool._current_model_memory == self.backend.active_bytes == 0
        assert self.pool._tasks == set()
        assert self.pool.snapshot().requests == ()


TestPoolProperties = PoolMachine.TestCase
