"""How everything uses an engine: while a lease is held, its model is not evicted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from omlx_tui.engines.base import Engine
from omlx_tui.engines.types import LoadProgress
from omlx_tui.pool.entry import EngineEntry

if TYPE_CHECKING:
    from omlx_tui.pool.serving import Waiting


class Lease:
    """A claim on one model, taken before it is resident and given back exactly once.

    Use as a context manager, and exhaust ``loading()`` before asking for ``engine``.

    Attributes:
        timeout_s: how long to wait for room; 0 means not at all.
        ticket: rises with each lease of the pool; who came earlier is served earlier.
        is_counted: whether the entry counts it. One taken while its model drains for somebody
            else lines up behind that one first.
    """

    def __init__(
        self,
        entry: EngineEntry,
        load: Callable[[Lease], AsyncGenerator[LoadProgress | Waiting]],
        *,
        give_back: Callable[[EngineEntry], None],
        timeout_s: float,
        ticket: int,
    ) -> None:
        self.entry = entry
        self.timeout_s = timeout_s
        self.ticket = ticket
        self.is_counted = False
        self._load = load
        self._give_back = give_back
        self._is_over = False

    @property
    def model_id(self) -> str:
        return self.entry.model_id

    @property
    def engine(self) -> Engine:
        """The resident engine.

        Raises:
            RuntimeError: the model is not resident (``loading()`` was not exhausted).
        """
        if self.entry.engine is None:
            raise RuntimeError(f"{self.model_id} is not resident")
        return self.entry.engine

    def count(self) -> None:
        """Have the entry count this lease, once."""
        if not self.is_counted and not self._is_over:
            self.is_counted = True
            self.entry.leases += 1

    def loading(self) -> AsyncGenerator[LoadProgress | Waiting]:
        """Make the model resident, by starting a load or joining one; yields nothing if it is.

        Raises:
            InsufficientMemoryError: there is no room and none can be made.
            WaitTimedOutError: room did not come in time.
            QueueFullError: too many wait already.
            ModelLoadError: the load failed.
            LoadCancelledError: the operator cancelled it.
            PoolClosedError: the pool is closing.
        """
        return self._load(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self.is_counted:
            self._give_back(self.entry)
