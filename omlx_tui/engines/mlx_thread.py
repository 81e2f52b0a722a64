"""The one thread that touches MLX."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from omlx_tui.engines.commands import Command, Report, Started, Stop, ThreadEnded
from omlx_tui.engines.types import LoadProgress, MemoryReading, SchedulerConfig

if TYPE_CHECKING:
    from omlx_tui.engines.worker import MLXWorker

_log = structlog.get_logger(__name__)


class MLXThread:
    """Runs an ``MLXWorker`` on a thread of its own: ordered commands in, reports out.

    ``emit`` is called on that thread and must not block. MLX and mlx-lm are imported there too,
    so that the seconds this takes are nobody else's.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        emit: Callable[[Report], None],
        slice_hook: Callable[[int, LoadProgress], None] | None = None,
    ) -> None:
        self._config = config
        self._emit = emit
        self._slice_hook = slice_hook
        self._commands: deque[Command] = deque()
        self._has_commands = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="mlx", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command; may be called on any thread."""
        with self._has_commands:
            self._commands.append(command)
            self._has_commands.notify()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        failure: str | None = None
        memory = MemoryReading()
        try:
            worker = self._make_worker()
            try:
                self._emit(Started(memory=worker.memory()))
                self._work(worker)
            finally:
                worker.close()
                memory = worker.memory()
        except BaseException as error:  # noqa: BLE001 - the host must hear of it, whatever it is
            failure = f"{type(error).__name__}: {error}"
            _log.exception("mlx_thread_died")
        self._emit(ThreadEnded(failure=failure, memory=memory))

    def _make_worker(self) -> MLXWorker:
        from omlx_tui.engines.worker import MLXWorker

        return MLXWorker(self._config, self._emit, self._slice_hook)

    def _work(self, worker: MLXWorker) -> None:
        while True:
            for command in self._take(wait=not worker.has_work()):
                if isinstance(command, Stop):
                    return
                worker.execute(command)
            worker.step()

    def _take(self, *, wait: bool) -> list[Command]:
        with self._has_commands:
            while wait and not self._commands:
                self._has_commands.wait()
            taken = list(self._commands)
            self._commands.clear()
        return taken
