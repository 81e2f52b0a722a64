"""What must always hold, whatever is asked in whatever order (docs/architecture.md lists it).

A rule-based machine drives a pool over the fake backend: requests start, stall, go on, are
cancelled; loads fail; the operator pins and unloads. After every rule the invariants are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from omlx_tui.engines import EngineError, Finished
from omlx_tui.pool import EnginePool, ModelState, PoolError
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
        self.pool = EnginePool(BUDGET_BYTES, backend=self.backend, clock=self.clock)
        self.pool.discover_models(self.folder.name)
        self.pool.events.subscribe(self.check_decision)
        self.requests: list[asyncio.Task[Any]] = []
        self.started = 0

    def check_decision(self, event: PoolEvent) -> None:
        """When a load is decided, each victim is nobody's, and they come in LRU order."""
        if isinstance(event, LoadStarted):
            victims = [self.pool._entries[model_id] for model_id in event.victims]
            assert all(v.leases == 0 and not v.is_pinned and not v.is_active() for v in victims)
            assert victims == lru_order(victims)

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
        self.pool.pin(model_id)

    @rule(model_id=model_ids)
    def unpin(self, model_id: str) -> None:
        self.pool.unpin(model_id)

    @rule(model_id=model_ids, force=st.booleans())
    def unload(self, model_id: str, force: bool) -> None:
        async def work() -> int:
            with contextlib.suppress(PoolError):
                await self.pool.unload(model_id, force=force)
            return 1

        self.requests.append(self.loop.create_task(work()))
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
                assert entry.leases == 0
                assert not entry.is_pinned
                wanted_by = self.pool._entries[entry.draining_for or ""]
                assert wanted_by.state is ModelState.LOADING
        snapshot = self.pool.snapshot()
        assert snapshot.held_bytes == sum(model.held_bytes for model in snapshot.models)
        live = sum(not task.done() for task in self.requests)
        assert len(snapshot.requests) <= live

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.backend.load_gate.open()
        self.backend.unload_gate.open()
        for engine in self.backend.engines.values():
            engine.decode.open()
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
TestPoolProperties.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
