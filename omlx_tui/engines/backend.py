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
from omlx_tui.engines.errors import EngineClosedError, EngineError, LoadFailedError
from omlx_tui.engines.mlx_thread import MLXThread
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
        self._failure: str | None = None
        self._keys = count(1)
        self._model_ids: dict[int, str] = {}
        self._engines: dict[int, BatchedEngine] = {}
        self._loads: dict[int, _Load] = {}
        self._unloads: dict[int, asyncio.Future[int]] = {}
        self._memory = MemoryReading()
        # One worker: tokenizers are not made to be used from several threads at once.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer")

    async def load(self, spec: ModelSpec, on_progress: Callable[[LoadProgress], None]) -> Engine:
        await self._ensure_started()
        engine_key = next(self._keys)
        self._model_ids[engine_key] = spec.model_id
        load = self._loads[engine_key] = _Load(on_progress)
        self._send(BeginLoad(engine_key, spec.model_id, spec.path))
        try:
            loop = asyncio.get_running_loop()
            prompter, weights_bytes = await asyncio.gather(
                loop.run_in_executor(self._executor, _load_prompter, spec),
                asyncio.shield(load.weights_bytes),
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
            weights_bytes=weights_bytes,
            send=self._send,
            executor=self._executor,
        )
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

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.send(Stop())
            await self._ended.wait()
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        # Waited for as well: MLX keeps a random key for each thread that imported mlx-lm.
        await asyncio.to_thread(self._executor.shutdown)

    async def _ensure_started(self) -> None:
        if self._failure is not None:
            raise EngineError(f"The MLX thread has ended: {self._failure}")
        if self._started is None:
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
                    engine.receive(report.outputs, report.kv_bytes)
            case LoadAdvanced():
                if load := self._loads.get(report.engine_key):
                    load.on_progress(report.progress)
            case Loaded():
                if load := self._loads.get(report.engine_key):
                    load.succeed(report.weights_bytes)
            case LoadEnded():
                if load := self._loads.get(report.engine_key):
                    load.end(report.failure)
            case Unloaded():
                self._unloads.pop(report.engine_key).set_result(report.freed_bytes)
            case ThreadEnded():
                self._on_thread_ended(report.failure)
            case _:
                raise AssertionError(f"unhandled report: {report}")

    def _on_thread_ended(self, failure: str | None) -> None:
        self._failure = failure or "it was stopped"
        detail = f"the MLX thread has ended: {self._failure}"
        reason = FinishReason.ABORTED if failure is None else FinishReason.ERROR
        self._set_started(EngineError(detail))
        for engine in self._engines.values():
            engine.close(reason, detail)
        self._engines.clear()
        for load in self._loads.values():
            load.end(detail)
        for unload in self._unloads.values():
            unload.set_exception(EngineClosedError(detail))
        self._unloads.clear()
        self._ended.set()

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
        self.weights_bytes: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.has_ended = asyncio.Event()

    def succeed(self, weights_bytes: int) -> None:
        if not self.weights_bytes.done():
            self.weights_bytes.set_result(weights_bytes)

    def end(self, failure: str | None) -> None:
        """The MLX thread holds nothing of it any more."""
        self.has_ended.set()
        if not self.weights_bytes.done():
            self.weights_bytes.set_exception(LoadFailedError(failure or "cancelled"))
            # Nobody may be waiting any more; that is no news then.
            self.weights_bytes.exception()


def _load_prompter(spec: ModelSpec) -> Prompter:
    try:
        return Prompter.from_folder(spec.model_id, spec.path)
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
