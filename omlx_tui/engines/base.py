"""The contract between the pool and whatever runs models.

Everything here is called on the host's event loop. The real backend hands the work to the MLX
thread; the tests' fake does it in place. ``tests/engines/test_contract.py`` holds both to it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from omlx_tui.engines.types import (
    EngineStats,
    GenerationEvent,
    GenerationRequest,
    LoadProgress,
    MemoryReading,
    ModelSpec,
    PreparedRequest,
)


class Engine(Protocol):
    """One resident model."""

    @property
    def model_id(self) -> str: ...

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights as they are held, measured after the load."""
        ...

    @property
    def context_tokens(self) -> int:
        """The most tokens that prompt and answer may have together."""
        ...

    def stats(self) -> EngineStats: ...

    def has_active_requests(self) -> bool:
        """Whether any request is queued, being prefilled or generating."""
        ...

    async def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Render the chat template and tokenise, off the event loop.

        Raises:
            ContextLengthError: the prompt leaves no room for an answer.
            PromptRefusedError: the model's chat template refuses the messages.
        """
        ...

    def generate(self, prepared: PreparedRequest) -> AsyncGenerator[GenerationEvent]:
        """Queue a request; the generator ends after exactly one ``Finished``.

        Closing the generator early aborts the request between two steps.

        Raises:
            EngineClosedError: on the first step, if the engine was unloaded meanwhile.
        """
        ...

    def abort(self, request_id: str) -> None:
        """End a request between two steps with ``Finished(ABORTED)``; unknown ids are ignored."""
        ...


class Backend(Protocol):
    """Loads and unloads engines."""

    async def load(self, spec: ModelSpec, on_progress: Callable[[LoadProgress], None]) -> Engine:
        """Load a model; cancelling the call cancels the load and gives its memory back.

        Raises:
            LoadFailedError: with the reason.
        """
        ...

    async def unload(self, engine: Engine) -> int:
        """Stop an engine (its requests end as aborted) and drop its memory.

        Returns:
            The bytes MLX gave back, measured.
        """
        ...

    def memory(self) -> MemoryReading: ...

    async def close(self) -> None:
        """Unload everything and end the backend's threads. Idempotent."""
        ...
