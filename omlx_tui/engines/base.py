"""The contract between the pool and whatever runs models.

Everything here is called on the host's event loop. The real backend hands the work to the MLX
thread; the tests' fake does it in place. ``tests/engines/test_contract.py`` holds both to it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from omlx_tui.engines.kv import KVCosts
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

    @property
    def kv_costs(self) -> KVCosts:
        """What requests may cost in KV cache; its ``floor_bytes`` is the least useful budget."""
        ...

    @property
    def kv_budget_bytes(self) -> int | None:
        """What live KV caches and the prefix cache may take together; None is no limit.

        Never less than ``kv_costs.floor_bytes``.
        """
        ...

    def set_kv_budget(self, budget_bytes: int | None) -> None:
        """Change the budget; less than the floor is raised to it.

        Requests that run keep what they have. Waiting ones are admitted if they fit now; one that
        no longer fits runs when it is alone.
        """
        ...

    def stats(self) -> EngineStats: ...

    def has_active_requests(self) -> bool:
        """Whether any request is queued, being prefilled or generating."""
        ...

    async def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Render the chat template and tokenise, off the event loop.

        An answer whose length was left open is limited to what the context and the KV budget
        allow.

        Raises:
            ContextLengthError: the prompt leaves no room for an answer.
            KVBudgetError: the KV budget has no room for the prompt, or for as many tokens of
                answer as were asked for.
            PromptRefusedError: the model's chat template refuses the messages.
        """
        ...

    def generate(self, prepared: PreparedRequest) -> AsyncGenerator[GenerationEvent]:
        """Queue a request; the generator ends after exactly one ``Finished``.

        A request that doesn't fit the KV budget beside those that run waits here, in order of
        arrival.

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

    def watch_loss(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the reason when all engines are lost at once.

        Their requests have had their ends by then. The next load starts afresh.
        """
        ...

    async def drop_prefix_caches(self, engine: Engine | None = None) -> int:
        """Give the prefix cache of an engine back, or of all; running requests don't notice.

        Returns:
            The bytes MLX gave back, measured.
        """
        ...

    async def drop_buffer_cache(self) -> int:
        """Give back the freed memory that MLX keeps for its next arrays; returns its bytes."""
        ...

    async def close(self) -> None:
        """Unload everything and end the backend's threads. Idempotent."""
        ...
