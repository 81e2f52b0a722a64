"""What the endpoint needs of the pool, and no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from omlx_tui.engines.types import GenerationRequest
from omlx_tui.pool.serving import RequestEvent
from omlx_tui.pool.snapshot import PoolSnapshot


class PromptPool(Protocol):
    """Answers prompts. Used on one event loop only, the one the endpoint runs in."""

    def generate(
        self, model_id: str, request: GenerationRequest, *, client: str
    ) -> AsyncGenerator[RequestEvent, None]:
        """Serve one request: ``Accepted`` first, exactly one ``Finished`` last.

        What it raises before ``Accepted`` refuses the request, what it raises later fails it.
        Cancelling the task that iterates, or closing the generator, aborts the request.
        """
        ...

    def snapshot(self) -> PoolSnapshot:
        """The pool at this instant."""
        ...

    def default_model_id(self) -> str | None:
        """The model for requests that name none; None if no model can be served."""
        ...
