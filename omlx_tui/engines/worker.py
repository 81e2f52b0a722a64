"""What the MLX thread does: commands in their order, and between them one step per turn."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable

import mlx.core as mx

from omlx_tui.engines.batch import ModelBatch
from omlx_tui.engines.commands import (
    Abort,
    BeginLoad,
    CancelLoad,
    Command,
    DropBuffers,
    DropCaches,
    Dropped,
    FailedOutput,
    LimitKV,
    LoadAdvanced,
    Loaded,
    LoadEnded,
    Report,
    StepOutput,
    Stepped,
    Stop,
    Submit,
    Unload,
    Unloaded,
)
from omlx_tui.engines.loading import LoadJob
from omlx_tui.engines.types import LoadProgress, MemoryReading, SchedulerConfig

# What MLX may keep of freed buffers where no setting says otherwise, see ``SchedulerConfig``.
_MOST_BUFFER_BYTES = 1024**3

SliceHook = Callable[[int, LoadProgress], None]


class MLXWorker:
    """Owns every model, batch and load of the process. Used on the MLX thread only.

    Engines and loads take turns in one rotation, so that a model that generates goes on while
    another one loads, and a busy model cannot keep the thread from the others.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        emit: Callable[[Report], None],
        slice_hook: SliceHook | None = None,
    ) -> None:
        self._config = config
        self._emit = emit
        self._slice_hook = slice_hook
        self._device = mx.default_device()
        self._stream = mx.new_stream(self._device)
        self._batches: dict[int, ModelBatch] = {}
        self._jobs: dict[int, LoadJob] = {}
        self._rotation: deque[int] = deque()
        self._keep_metal_memory_wired()
        _exempt_imports_from_collection()
        self._buffer_limit_found = self._limit_buffers()

    def memory(self) -> MemoryReading:
        return MemoryReading(
            active_bytes=mx.get_active_memory(),
            cache_bytes=mx.get_cache_memory(),
            peak_bytes=mx.get_peak_memory(),
        )

    def has_work(self) -> bool:
        return bool(self._jobs) or any(batch.has_work() for batch in self._batches.values())

    def execute(self, command: Command) -> None:
        """Carry out one command; what goes wrong is reported, not raised."""
        with mx.stream(self._stream):
            match command:
                case BeginLoad():
                    self._begin_load(command)
                case CancelLoad(engine_key):
                    self._cancel_load(engine_key)
                case Unload(engine_key):
                    self._unload(engine_key)
                case Submit():
                    self._submit(command)
                case Abort(engine_key, request_id):
                    self._change(engine_key, lambda batch: batch.abort(request_id))
                case LimitKV(engine_key, budget_bytes):
                    self._change(engine_key, lambda batch: batch.limit_kv(budget_bytes))
                case DropCaches(ticket, engine_key):
                    self._drop_prefixes(ticket, engine_key)
                case DropBuffers(ticket):
                    self._drop_buffers(ticket)
                case Stop():
                    raise AssertionError("the thread itself takes Stop")

    def step(self) -> None:
        """Give the next engine or load that has work one turn."""
        for _ in range(len(self._rotation)):
            engine_key = self._rotation[0]
            self._rotation.rotate(-1)
            if engine_key in self._jobs:
                with mx.stream(self._stream):
                    self._advance_load(self._jobs[engine_key])
                return
            if self._batches[engine_key].has_work():
                self._advance_batch(engine_key)
                return

    def close(self) -> None:
        """Drop everything MLX made on this thread; a thread that keeps a stream aborts at exit."""
        for engine_key in tuple(self._rotation):
            self._drop(engine_key)
        self._collect()
        mx.set_cache_limit(self._buffer_limit_found)
        mx.clear_streams()

    def _begin_load(self, command: BeginLoad) -> None:
        self._jobs[command.engine_key] = LoadJob(
            command,
            slice_bytes=self._config.load_slice_bytes,
            raise_to_fp32=self._raises_to_fp32(),
        )
        self._rotation.append(command.engine_key)

    def _advance_load(self, job: LoadJob) -> None:
        key = job.engine_key
        failure: str | None = None
        progress = LoadProgress(0, 0)
        try:
            progress = job.step()
        except Exception as error:  # noqa: BLE001 - whatever a model's files provoke
            failure = _describe(error)
        # Outside the handler: the exception's frames would keep the weights alive.
        if failure is not None:
            self._drop(key)
            self._end_load(key, failure=failure)
            return
        self._emit(LoadAdvanced(engine_key=key, progress=progress, memory=self.memory()))
        if self._slice_hook is not None:
            self._slice_hook(key, progress)
        if progress.done_bytes == progress.total_bytes:
            self._finish_load(job)

    def _finish_load(self, job: LoadJob) -> None:
        key = job.engine_key
        failure: str | None = None
        weights_bytes = job.total_bytes
        try:
            self._batches[key] = ModelBatch(job.take_model(), self._config, self._stream)
        except Exception as error:  # noqa: BLE001 - whatever a model's caches provoke
            failure = _describe(error)
        if failure is not None:
            self._drop(key)
            self._end_load(key, failure=failure)
            return
        del self._jobs[key]
        self._emit(
            Loaded(
                engine_key=key,
                weights_bytes=weights_bytes,
                is_raised=self._raises_to_fp32(),
                memory=self.memory(),
            )
        )

    def _cancel_load(self, engine_key: int) -> None:
        if self._drop(engine_key):
            self._end_load(engine_key, failure=None)

    def _end_load(self, engine_key: int, *, failure: str | None) -> None:
        self._collect()
        self._emit(LoadEnded(engine_key=engine_key, failure=failure, memory=self.memory()))

    def _unload(self, engine_key: int) -> None:
        # Everything queued on the stream is waited for first: with this thread busy here, nothing
        # else can allocate, and the difference is exactly what this engine gave back.
        freed_bytes, failure = 0, None
        try:
            mx.synchronize(self._stream)
            before_bytes = mx.get_active_memory()
            self._drop(engine_key)
            self._collect()
            freed_bytes = max(0, before_bytes - mx.get_active_memory())
        except Exception as error:  # noqa: BLE001 - the pool keeps counting its bytes then
            failure = _describe(error)
        self._emit(
            Unloaded(
                engine_key=engine_key,
                freed_bytes=freed_bytes,
                failure=failure,
                memory=self.memory(),
            )
        )

    def _submit(self, command: Submit) -> None:
        batch = self._batches.get(command.engine_key)
        try:
            if batch is None:
                raise LookupError("the model was unloaded")
            batch.submit(command)
        except Exception as error:  # noqa: BLE001 - one request must not end the thread
            self._emit_outputs(
                command.engine_key, (FailedOutput(command.request_id, _describe(error)),)
            )

    def _change(self, engine_key: int, change: Callable[[ModelBatch], None]) -> None:
        """Do something to a batch that may have gone; if that breaks it, its requests end."""
        batch = self._batches.get(engine_key)
        if batch is None:
            return
        outputs: tuple[StepOutput, ...] = ()
        try:
            change(batch)
        except Exception as error:  # noqa: BLE001 - the other engines go on
            outputs = batch.fail(_describe(error))
        self._emit_outputs(engine_key, outputs)

    def _advance_batch(self, engine_key: int) -> None:
        batch = self._batches[engine_key]
        try:
            outputs = batch.step()
        except Exception as error:  # noqa: BLE001 - the other engines go on
            outputs = batch.fail(_describe(error))
        self._emit_outputs(engine_key, outputs)

    def _emit_outputs(self, engine_key: int, outputs: tuple[StepOutput, ...]) -> None:
        batch = self._batches.get(engine_key)
        self._emit(
            Stepped(
                engine_key=engine_key,
                outputs=outputs,
                kv_bytes=batch.kv_bytes if batch else 0,
                prefix_cache_bytes=batch.prefix_cache_bytes if batch else 0,
                memory=self.memory(),
            )
        )

    def _drop_prefixes(self, ticket: int, engine_key: int | None) -> None:
        """Drop prefixes of one engine or all; like an unload, it frees exactly the difference."""
        mx.synchronize(self._stream)
        before_bytes = mx.get_active_memory()
        keys = [key for key in self._batches if engine_key in (None, key)]
        for key in keys:
            self._batches[key].drop_prefixes()
        self._collect()
        freed_bytes = max(0, before_bytes - mx.get_active_memory())
        for key in keys:
            self._emit_outputs(key, ())
        self._emit(Dropped(ticket=ticket, freed_bytes=freed_bytes, memory=self.memory()))

    def _drop_buffers(self, ticket: int) -> None:
        before_bytes = mx.get_cache_memory()
        mx.clear_cache()
        freed_bytes = max(0, before_bytes - mx.get_cache_memory())
        self._emit(Dropped(ticket=ticket, freed_bytes=freed_bytes, memory=self.memory()))

    def _drop(self, engine_key: int) -> bool:
        """Let go of a load or an engine; says whether there was one."""
        batch = self._batches.pop(engine_key, None)
        job = self._jobs.pop(engine_key, None)
        if batch is None and job is None:
            return False
        self._rotation.remove(engine_key)
        if batch is not None:
            batch.close()
        if job is not None:
            job.release()
        return True

    def _collect(self) -> None:
        gc.collect()
        mx.synchronize(self._stream)
        mx.clear_cache()

    def _raises_to_fp32(self) -> bool:
        return self._config.raise_to_fp32_on_cpu and self._device == mx.cpu

    def _limit_buffers(self) -> int:
        """Bound MLX's cache of freed buffers; returns the limit that was found, to restore it."""
        wanted = self._config.buffer_cache_limit_bytes
        found = mx.set_cache_limit(_MOST_BUFFER_BYTES if wanted is None else wanted)
        if wanted is None and found < _MOST_BUFFER_BYTES:
            mx.set_cache_limit(found)
        return found

    def _keep_metal_memory_wired(self) -> None:
        """Raise the wired limit once: each ``BatchGenerator`` restores the limit it found, so the
        first one closed would otherwise take it from those that still run."""
        recommended = mx.device_info().get("max_recommended_working_set_size")
        if recommended is not None:
            mx.set_wired_limit(int(recommended))


def _exempt_imports_from_collection() -> None:
    """Take what is alive now out of the garbage collector's work.

    Each unload collects, so that no cycle keeps a model, and everybody's tokens wait meanwhile:
    about 50 ms for all that mlx-lm and Textual bring along, next to nothing without it.
    """
    gc.collect()
    gc.freeze()


def _describe(error: BaseException) -> str:
    """An exception as one line."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
