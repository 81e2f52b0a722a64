"""The real backend: engines on the host's loop, their models on the MLX thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TypeVar

from omlx_tui.engines.base import Engine
from omlx_tui.engines.batched import BatchedEngine
from omlx_tui.engines.commands import (
    BeginLoad,
    CancelLoad,
    Command,
    DropBuffers,
    DropCaches,
    Dropped,
    LoadAdvanced,
    Loaded,
    LoadEnded,
    Report,
    Started,
    Stepped,
    Stop,
    ThreadEnded,
    Unload,
    Unloaded,
)
from omlx_tui.engines.errors import (
    EngineClosedError,
    EngineError,
    EngineLostError,
    LoadFailedError,
)
from omlx_tui.engines.kv_config import kv_costs
from omlx_tui.engines.mlx_thread import MLXThread
from omlx_tui.engines.model_config import read_json_object
from omlx_tui.engines.prompts import Prompter
from omlx_tui.engines.types import (
    FinishReason,
    LoadProgress,
    MemoryReading,
    ModelSpec,
    SchedulerConfig,
)

T = TypeVar("T")
SliceHook = Callable[[str, LoadProgress], None]


class MLXBackend:
    """Loads and unloads ``BatchedEngine``s; implements ``engines.base.Backend``.

    Used on one event loop. The MLX thread starts with the first load and ends with ``close``.
    ``slice_hook`` is called on the MLX thread after each slice of a load, for tests.
    """

    def __init__(self, config: SchedulerConfig, *, slice_hook: SliceHook | None = None) -> None:
        self._config = config
        self._slice_hook = slice_hook
        self._thread: MLXThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: asyncio.Future[None] | None = None
        self._ended: asyncio.Event = asyncio.Event()
        self._is_closed = False
        self._on_loss: Callable[[str], None] = lambda reason: None
        self._keys = count(1)
        self._model_ids: dict[int, str] = {}
        self._engines: dict[int, BatchedEngine] = {}
        self._loads: dict[int, _Load] = {}
        self._unloads: dict[int, asyncio.Future[int]] = {}
        self._tickets = count(1)
        self._drops: dict[int, asyncio.Future[int]] = {}
        self._memory = MemoryReading()
        # One worker each: tokenizers are not made to be used from several threads at once, and
        # loading one, which takes up to a second, must not hold up another model's prompts.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer")
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer-loader")

    async def load(self, spec: ModelSpec, on_progress: Callable[[LoadProgress], None]) -> Engine:
        await self._ensure_started()
        engine_key = next(self._keys)
        self._model_ids[engine_key] = spec.model_id
        load = self._loads[engine_key] = _Load(on_progress)
        self._send(BeginLoad(engine_key, spec.model_id, spec.path))
        try:
            loop = asyncio.get_running_loop()
            (prompter, model_config), loaded = await asyncio.gather(
                loop.run_in_executor(self._reader, _read_folder, spec),
                asyncio.shield(load.loaded),
            )
        except BaseException:
            await self._abandon(engine_key, load)
            raise
        finally:
            del self._loads[engine_key], self._model_ids[engine_key]
        engine = BatchedEngine(
            spec.model_id,
            engine_key,
            prompter,
            weights_bytes=loaded.weights_bytes,
            kv_costs=kv_costs(
                model_config,
                self._config,
                is_raised=loaded.is_raised,
                context_limit=spec.context_limit,
            ),
            send=self._send,
            executor=self._executor,
        )
        engine.set_kv_budget(spec.kv_budget_bytes)
        self._engines[engine_key] = engine
        return engine

    async def unload(self, engine: Engine) -> int:
        if not isinstance(engine, BatchedEngine):
            raise TypeError(f"{engine!r} is not an engine of this backend")
        engine.close(FinishReason.ABORTED, "the model was unloaded")
        if self._engines.pop(engine.engine_key, None) is None:
            return 0
        unloaded = self._running_loop().create_future()
        self._unloads[engine.engine_key] = unloaded
        self._send(Unload(engine.engine_key))
        return await _outlast_cancellation(unloaded)

    def memory(self) -> MemoryReading:
        return self._memory

    async def drop_prefix_caches(self, engine: Engine | None = None) -> int:
        if engine is not None and not isinstance(engine, BatchedEngine):
            raise TypeError(f"{engine!r} is not an engine of this backend")
        engine_key = None if engine is None else engine.engine_key
        return await self._drop(lambda ticket: DropCaches(ticket, engine_key))

    async def drop_buffer_cache(self) -> int:
        return await self._drop(DropBuffers)

    def watch_loss(self, listener: Callable[[str], None]) -> None:
        self._on_loss = listener

    async def close(self) -> None:
        self._is_closed = True
        if self._thread is not None:
            self._thread.send(Stop())
            await self._ended.wait()
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        # Waited for as well: MLX keeps a random key for each thread that imported mlx-lm.
        await asyncio.to_thread(self._executor.shutdown)
        await asyncio.to_thread(self._reader.shutdown)

    async def _ensure_started(self) -> None:
        if self._is_closed:
            raise EngineClosedError("The engines' thread has been stopped.")
        if self._started is None:
            self._ended.clear()
            self._loop = asyncio.get_running_loop()
            self._started = self._loop.create_future()
            self._thread = MLXThread(self._config, self._report, self._on_slice)
            self._thread.start()
        await asyncio.shield(self._started)

    async def _abandon(self, engine_key: int, load: _Load) -> None:
        """End a load that nobody wants any more; returns when its memory has been given back."""
        if load.has_ended.is_set():
            return
        self._send(CancelLoad(engine_key))
        await _outlast_cancellation(asyncio.ensure_future(load.has_ended.wait()))

    async def _drop(self, command: Callable[[int], DropCaches | DropBuffers]) -> int:
        if self._thread is None or self._ended.is_set():
            return 0
        ticket = next(self._tickets)
        dropped = self._drops[ticket] = self._running_loop().create_future()
        self._send(command(ticket))
        return await asyncio.shield(dropped)

    def _send(self, command: Command) -> None:
        if self._thread is not None:
            self._thread.send(command)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("nothing was loaded yet")
        return self._loop

    def _on_slice(self, engine_key: int, progress: LoadProgress) -> None:
        if self._slice_hook is not None:
            self._slice_hook(self._model_ids[engine_key], progress)

    def _report(self, report: Report) -> None:
        """On the MLX thread: hand a report over to the loop."""
        try:
            self._running_loop().call_soon_threadsafe(self._receive, report)
        except RuntimeError:
            # The loop has been closed under us: nobody is left to tell.
            return

    def _receive(self, report: Report) -> None:
        """On the loop: the one place where the MLX thread's news comes in."""
        self._memory = report.memory
        match report:
            case Started():
                self._set_started(None)
            case Stepped():
                if engine := self._engines.get(report.engine_key):
                    engine.receive(report)
            case LoadAdvanced():
                if load := self._loads.get(report.engine_key):
                    load.on_progress(report.progress)
            case Loaded():
                if load := self._loads.get(report.engine_key):
                    load.succeed(report)
            case LoadEnded():
                if load := self._loads.get(report.engine_key):
                    load.end(LoadFailedError(report.failure or "cancelled"))
            case Unloaded():
                self._on_unloaded(report)
            case Dropped():
                self._drops.pop(report.ticket).set_result(report.freed_bytes)
            case ThreadEnded():
                self._on_thread_ended(report.failure)
            case _:
                raise AssertionError(f"unhandled report: {report}")

    def _on_unloaded(self, report: Unloaded) -> None:
        unloaded = self._unloads.pop(report.engine_key)
        if report.failure is None:
            unloaded.set_result(report.freed_bytes)
        else:
            unloaded.set_exception(EngineError(report.failure))

    def _on_thread_ended(self, failure: str | None) -> None:
        """Everybody who waits hears of it; unless it was told to end, the next load starts anew."""
        detail = f"the MLX thread has ended: {failure or 'it was stopped'}"
        reason = FinishReason.ABORTED if failure is None else FinishReason.ERROR
        self._set_started(EngineLostError(detail))
        self._started = None
        for engine in self._engines.values():
            engine.close(reason, detail)
        self._engines.clear()
        for load in self._loads.values():
            load.end(EngineLostError(detail))
        for unload in self._unloads.values():
            unload.set_exception(EngineLostError(detail))
        self._unloads.clear()
        for drop in self._drops.values():
            # Nothing is left of what was to be given back.
            drop.set_result(0)
        self._drops.clear()
        self._ended.set()
        if failure is not None:
            self._on_loss(failure)

    def _set_started(self, error: EngineError | None) -> None:
        if self._started is None or self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)


class _Load:
    """A load in flight, as the loop sees it."""

    def __init__(self, on_progress: Callable[[LoadProgress], None]) -> None:
        self.on_progress = on_progress
        self.loaded: asyncio.Future[Loaded] = asyncio.get_running_loop().create_future()
        self.has_ended = asyncio.Event()

    def succeed(self, loaded: Loaded) -> None:
        if not self.loaded.done():
            self.loaded.set_result(loaded)

    def end(self, error: EngineError) -> None:
        """The MLX thread holds nothing of it any more."""
        self.has_ended.set()
        if not self.loaded.done():
            self.loaded.set_exception(error)
            # Nobody may be waiting any more; that is no news then.
            self.loaded.exception()


def _read_folder(spec: ModelSpec) -> tuple[Prompter, dict[str, object]]:
    """Its tokenizer, and its config."""
    try:
        return Prompter.from_folder(spec), read_json_object(spec.path / "config.json")
    except Exception as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        raise LoadFailedError(f"its tokenizer: {detail}") from error


async def _outlast_cancellation(future: asyncio.Future[T]) -> T:
    """Wait for what must be waited for, then let a cancellation that came meanwhile through."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001, S110 - raised by result() below
            pass
    if cancelled is not None:
        raise cancelled
    return future.result()
