"""How everything uses an engine: while a lease is held, its model is not evicted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Self

from omlx_tui.engines.base import Engine
from omlx_tui.engines.types import LoadProgress
from omlx_tui.pool.entry import EngineEntry


class Lease:
    """A claim on one model, taken before it is resident and given back exactly once.

    Use as a context manager, and exhaust ``loading()`` before asking for ``engine``.
    """

    def __init__(
        self,
        entry: EngineEntry,
        load: Callable[[EngineEntry], AsyncGenerator[LoadProgress]],
        give_back: Callable[[EngineEntry], None],
    ) -> None:
        self._entry = entry
        self._load = load
        self._give_back = give_back
        self._is_held = True

    @property
    def model_id(self) -> str:
        return self._entry.model_id

    @property
    def engine(self) -> Engine:
        """The resident engine.

        Raises:
            RuntimeError: the model is not resident (``loading()`` was not exhausted).
        """
        if self._entry.engine is None:
            raise RuntimeError(f"{self.model_id} is not resident")
        return self._entry.engine

    def loading(self) -> AsyncGenerator[LoadProgress]:
        """Make the model resident, by starting a load or joining one; yields nothing if it is.

        Raises:
            InsufficientMemoryError: there is no room and none can be made.
            ModelLoadError: the load failed.
            LoadCancelledError: the operator cancelled it.
            PoolClosedError: the pool is closing.
        """
        return self._load(self._entry)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_held:
            self._is_held = False
            self._give_back(self._entry)
