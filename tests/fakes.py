"""Stand-ins for MLX and for time. ``tests/engines/test_contract.py`` holds the fake backend to
the same promises as the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field

from omlx_tui.engines import (
    ContextLengthError,
    Engine,
    EngineClosedError,
    EngineStats,
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    KVCosts,
    KVShape,
    LoadFailedError,
    LoadProgress,
    MemoryReading,
    ModelSpec,
    PrefillProgress,
    PreparedRequest,
    TextDelta,
)
from omlx_tui.engines.admission import KVAdmission
from omlx_tui.engines.kv import KVLayers


@dataclass
class ManualClock:
    """Time that stands still until told otherwise."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


class Gate:
    """A door in the fake's work that a test may close, and open when it wants it to go on."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.waiting = 0

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def passage(self) -> None:
        self.waiting += 1
        try:
            await self._open.wait()
        finally:
            self.waiting -= 1


@dataclass(eq=False)
class FakeEngine:
    """An engine whose answers are the words of the last message, one per token."""

    model_id: str
    weights_bytes: int
    context_tokens: int = 2048
    decode: Gate = field(default_factory=Gate)
    prepare_gate: Gate = field(default_factory=Gate)
    active: dict[str, asyncio.Event] = field(default_factory=dict)
    kv_bytes: int = 0
    prefix_cache_bytes: int = 0
    busy_check_error: Exception | None = None
    is_closed: bool = False
    admitted: dict[str, asyncio.Event] = field(default_factory=dict)
    kv_costs: KVCosts = field(init=False)

    def __post_init__(self) -> None:
        self.kv_costs = KVCosts(
            shape=KVShape((KVLayers(1),)), prefill_step=512, context_tokens=self.context_tokens
        )
        self._admission = KVAdmission(self.model_id, self.kv_costs)

    @property
    def kv_budget_bytes(self) -> int | None:
        return self._admission.budget_bytes

    def set_kv_budget(self, budget_bytes: int | None) -> None:
        self._admission.budget_bytes = budget_bytes
        self._admit()

    def _admit(self) -> None:
        for request_id in self._admission.admit():
            self.admitted[request_id].set()

    def stats(self) -> EngineStats:
        running = sum(admitted.is_set() for admitted in self.admitted.values())
        return EngineStats(
            active_requests=running,
            queued_requests=len(self.active) - running,
            kv_bytes=self.kv_bytes,
            prefix_cache_bytes=self.prefix_cache_bytes,
        )

    def has_active_requests(self) -> bool:
        if self.busy_check_error is not None:
            raise self.busy_check_error
        return bool(self.active)

    async def prepare(self, request: GenerationRequest) -> PreparedRequest:
        await self.prepare_gate.passage()
        words = request.messages[-1].content.split()
        room = self.context_tokens - len(words)
        if room < 1:
            raise ContextLengthError(self.model_id, len(words), self.context_tokens)
        return self._admission.settle(
            PreparedRequest(
                request=request,
                prompt=tuple(range(len(words))),
                max_tokens=min(request.max_tokens or room, room),
            )
        )

    async def generate(self, prepared: PreparedRequest) -> AsyncGenerator[GenerationEvent]:
        if self.is_closed:
            raise EngineClosedError(f"{self.model_id} was unloaded before the request began.")
        request = prepared.request
        aborted = self.active[request.request_id] = asyncio.Event()
        admitted = self.admitted[request.request_id] = asyncio.Event()
        self._admission.enqueue(prepared)
        self._admit()
        total = len(prepared.prompt)
        generated = 0
        try:
            if not admitted.is_set():
                await _first_of(admitted.wait(), aborted.wait())
            if not aborted.is_set():
                yield PrefillProgress(total, total)
            words = request.messages[-1].content.split()
            for word in words[: prepared.max_tokens]:
                if not aborted.is_set():
                    await _first_of(self.decode.passage(), aborted.wait())
                if aborted.is_set():
                    break
                generated += 1
                yield TextDelta(f"{word} ", generated)
            reason = FinishReason.STOP if generated == len(words) else FinishReason.LENGTH
            yield Finished(
                reason=FinishReason.ABORTED if aborted.is_set() else reason,
                prompt_tokens=total,
                generated_tokens=generated,
            )
        finally:
            del self.active[request.request_id], self.admitted[request.request_id]
            self._admission.withdraw(request.request_id)
            self._admit()

    def abort(self, request_id: str) -> None:
        if request_id in self.active:
            self.active[request_id].set()


async def _first_of(*awaited: Coroutine[object, object, object]) -> None:
    """Wait until one of these is through, and leave none of the others behind."""
    tasks = {asyncio.ensure_future(one) for one in awaited}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class FakeBackend:
    """Loads in steps and keeps count of every byte, as MLX would."""

    def __init__(self, *, slices: int = 4) -> None:
        self.slices = slices
        self.load_gate = Gate()
        self.unload_gate = Gate()
        self.active_bytes = 0
        self.buffer_cache_bytes = 0
        self.most_active_bytes = 0
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.engines: dict[str, FakeEngine] = {}
        self.load_failures: dict[str, str] = {}
        self.unload_failures: dict[str, str] = {}
        self.measured_bytes: dict[str, int] = {}
        self.is_closed = False

    async def load(self, spec: ModelSpec, on_progress: Callable[[LoadProgress], None]) -> Engine:
        self.loads.append(spec.model_id)
        total = self.measured_bytes.get(spec.model_id, spec.weights_bytes)
        held = 0
        try:
            for index in range(self.slices):
                on_progress(LoadProgress(total * index // self.slices, total))
                await self.load_gate.passage()
                await asyncio.sleep(0)
                if index == self.slices // 2 and spec.model_id in self.load_failures:
                    raise LoadFailedError(self.load_failures[spec.model_id])
                piece = total * (index + 1) // self.slices - held
                held += piece
                self._allocate(piece)
        except BaseException:
            self._allocate(-held)
            raise
        on_progress(LoadProgress(total, total))
        context_tokens = min(2048, spec.context_limit or 2048)
        engine = self.engines[spec.model_id] = FakeEngine(spec.model_id, total, context_tokens)
        engine.set_kv_budget(spec.kv_budget_bytes)
        return engine

    async def unload(self, engine: Engine) -> int:
        assert isinstance(engine, FakeEngine)
        if engine.model_id in self.unload_failures:
            raise RuntimeError(self.unload_failures[engine.model_id])
        engine.is_closed = True
        for request_id in tuple(engine.active):
            engine.abort(request_id)
        await self.unload_gate.passage()
        await asyncio.sleep(0)
        self.unloads.append(engine.model_id)
        if self.engines.pop(engine.model_id, None) is None:
            return 0
        self._allocate(-engine.weights_bytes)
        return engine.weights_bytes

    def watch_loss(self, listener: Callable[[str], None]) -> None:
        self._on_loss = listener

    def lose_engines(self, reason: str) -> None:
        """What happens when the MLX thread dies."""
        for engine in self.engines.values():
            engine.is_closed = True
            for request_id in tuple(engine.active):
                engine.abort(request_id)
            self._allocate(-engine.weights_bytes)
        self.engines.clear()
        self._on_loss(reason)

    def memory(self) -> MemoryReading:
        return MemoryReading(
            active_bytes=self.active_bytes,
            cache_bytes=self.buffer_cache_bytes,
            peak_bytes=self.most_active_bytes,
        )

    async def drop_prefix_caches(self, engine: Engine | None = None) -> int:
        freed_bytes = 0
        for one in self.engines.values():
            if engine in (None, one):
                freed_bytes += one.prefix_cache_bytes
                one.prefix_cache_bytes = 0
        return freed_bytes

    async def drop_buffer_cache(self) -> int:
        freed_bytes, self.buffer_cache_bytes = self.buffer_cache_bytes, 0
        return freed_bytes

    async def close(self) -> None:
        self.unload_failures.clear()
        for engine in tuple(self.engines.values()):
            await self.unload(engine)
        self.is_closed = True

    def _allocate(self, size_bytes: int) -> None:
        self.active_bytes += size_bytes
        self.most_active_bytes = max(self.most_active_bytes, self.active_bytes)


def a_request(
    text: str = "once upon a time", *, request_id: str = "r1", **facts
) -> GenerationRequest:
    from omlx_tui.engines import Message

    return GenerationRequest(request_id=request_id, messages=(Message("user", text),), **facts)
