"""Why the pool could not give a caller an engine. Each message is one line for the operator."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable

from omlx_tui.engines.errors import EngineLostError
from omlx_tui.sizes import format_bytes


class PoolError(Exception):
    """Base of everything the pool raises on purpose."""


class PoolClosedError(PoolError):
    """The pool is shutting down or has ended."""

    def __init__(self) -> None:
        super().__init__("The pool is closed; start omlx-tui again.")


class ModelNotFoundError(PoolError):
    """No model of that id was discovered.

    Attributes:
        near: ids that look like the one asked for, the nearest first.
    """

    def __init__(self, model_id: str, known: Iterable[str]) -> None:
        self.model_id = model_id
        self.near = tuple(difflib.get_close_matches(model_id, list(known), n=3, cutoff=0.4))
        hint = f" Did you mean {', '.join(self.near)}?" if self.near else ""
        super().__init__(f"There is no model {model_id!r} here.{hint}")


class ModelNotServableError(PoolError):
    """The model was found, but its files can't be served."""

    def __init__(self, model_id: str, reason: str) -> None:
        self.model_id = model_id
        self.reason = reason
        super().__init__(f"{model_id} can't be served: {reason}")


class ModelBusyError(PoolError):
    """An operation needs the model idle, and it is serving."""

    def __init__(self, model_id: str, active_requests: int) -> None:
        self.model_id = model_id
        self.active_requests = active_requests
        super().__init__(
            f"{model_id} is serving {active_requests} request(s); "
            "force the unload to end them, or wait."
        )


class ModelLoadError(PoolError):
    """Loading was tried and failed; the entry keeps the reason."""

    def __init__(self, model_id: str, reason: str) -> None:
        self.model_id = model_id
        self.reason = reason
        super().__init__(f"{model_id} could not be loaded: {reason}")


class LoadCancelledError(PoolError):
    """The load ended before it was done, because somebody said so."""

    def __init__(self, model_id: str, reason: str = "nobody waits for it any more") -> None:
        self.model_id = model_id
        self.reason = reason
        super().__init__(f"The load of {model_id} was cancelled: {reason}.")


class InsufficientMemoryError(PoolError):
    """Room for a model can't be made by evicting what may be evicted.

    Attributes:
        needed_bytes: the footprint asked for (weights and KV headroom).
        budget_bytes: the whole budget.
        free_bytes: what is unclaimed now.
        freeable_bytes: what evicting every evictable model would add to that.
        blocking: ids of models that hold memory and may not be evicted now.
    """

    def __init__(
        self,
        model_id: str,
        *,
        needed_bytes: int,
        budget_bytes: int,
        free_bytes: int,
        freeable_bytes: int,
        blocking: tuple[str, ...] = (),
    ) -> None:
        self.model_id = model_id
        self.needed_bytes = needed_bytes
        self.budget_bytes = budget_bytes
        self.free_bytes = free_bytes
        self.freeable_bytes = freeable_bytes
        self.blocking = blocking
        super().__init__(self._explain())

    def waited(self, waited_s: float) -> WaitTimedOutError:
        """The same facts, after a wait for room that did not come."""
        return WaitTimedOutError(
            self.model_id,
            needed_bytes=self.needed_bytes,
            budget_bytes=self.budget_bytes,
            free_bytes=self.free_bytes,
            freeable_bytes=self.freeable_bytes,
            blocking=self.blocking,
            waited_s=waited_s,
        )

    @property
    def can_never_fit(self) -> bool:
        """Whether the model is larger than the whole budget, so that waiting is no use."""
        return self.needed_bytes > self.budget_bytes

    def _explain(self) -> str:
        needed = format_bytes(self.needed_bytes)
        budget = format_bytes(self.budget_bytes)
        if self.can_never_fit:
            return (
                f"{self.model_id} needs {needed} (weights and KV headroom), more than the whole "
                f"budget of {budget}. Raise --max-model-memory or choose a smaller model."
            )
        held = f" Held by {', '.join(self.blocking)} (pinned or busy)." if self.blocking else ""
        return (
            f"{self.model_id} needs {needed} of a budget of {budget}: "
            f"{format_bytes(self.free_bytes)} are free and {format_bytes(self.freeable_bytes)} "
            f"more could be freed.{held}"
        )


class WaitTimedOutError(InsufficientMemoryError):
    """Room was waited for, and did not come in time; says what stood in the way."""

    def __init__(
        self,
        model_id: str,
        *,
        needed_bytes: int,
        budget_bytes: int,
        free_bytes: int,
        freeable_bytes: int,
        blocking: tuple[str, ...],
        waited_s: float,
    ) -> None:
        self.waited_s = waited_s
        super().__init__(
            model_id,
            needed_bytes=needed_bytes,
            budget_bytes=budget_bytes,
            free_bytes=free_bytes,
            freeable_bytes=freeable_bytes,
            blocking=blocking,
        )

    def _explain(self) -> str:
        return f"Waited {self.waited_s:.0f} s for room. {super()._explain()}"


class QueueFullError(PoolError):
    """As many callers wait as may; trying again later can help."""

    def __init__(self, model_id: str, waiting: int) -> None:
        self.model_id = model_id
        self.waiting = waiting
        super().__init__(f"{waiting} request(s) wait already; try {model_id} again later.")


def load_error(model_id: str, failure: BaseException) -> PoolError:
    """What to tell those who waited for a load that ended like this."""
    if isinstance(failure, asyncio.CancelledError):
        return LoadCancelledError(model_id)
    if isinstance(failure, PoolError):
        return failure
    if isinstance(failure, EngineLostError):
        # No fault of the model: the next request tries again at once.
        return LoadCancelledError(model_id, one_line(failure))
    return ModelLoadError(model_id, one_line(failure))


def one_line(error: BaseException) -> str:
    """An exception's message without its line breaks, or its name if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
