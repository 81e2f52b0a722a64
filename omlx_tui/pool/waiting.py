"""The line of callers for whom no room could be made yet: first come, first served."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from omlx_tui.pool.entry import EngineEntry
from omlx_tui.pool.errors import InsufficientMemoryError, QueueFullError


@dataclass(slots=True, eq=False)
class Waiter:
    """One caller in the line, and why it is not its turn yet."""

    entry: EngineEntry
    reason: InsufficientMemoryError
    ticket: int


class WaitingLine:
    """A bounded queue over all models. Only its head may claim room.

    So a stream of callers that would fit cannot keep passing one that does not.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiters: list[Waiter] = []

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._waiters)

    def join(self, entry: EngineEntry, reason: InsufficientMemoryError, ticket: int) -> Waiter:
        """Line up by ticket, so that a wait behind a drain costs nobody their place.

        Raises:
            QueueFullError: the line is as long as it may be.
        """
        if len(self._waiters) >= self._max_waiting:
            raise QueueFullError(entry.model_id, len(self._waiters))
        waiter = Waiter(entry, reason, ticket)
        bisect.insort(self._waiters, waiter, key=lambda each: each.ticket)
        return waiter

    def leave(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)

    def is_head(self, waiter: Waiter) -> bool:
        return bool(self._waiters) and self._waiters[0] is waiter

    def position(self, waiter: Waiter) -> int:
        """1 for the head."""
        return self._waiters.index(waiter) + 1
