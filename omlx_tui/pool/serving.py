"""One request through the pool: lease, load if need be, prompt, tokens, and one end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omlx_tui.engines.types import (
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    LoadProgress,
)
from omlx_tui.pool.errors import QueueFullError

if TYPE_CHECKING:
    from omlx_tui.pool.lease import Lease


@dataclass(frozen=True, slots=True)
class Accepted:
    """The pool has taken the request; what may still fail ends it as a failed response.

    ``needs_load`` says that the model is not resident yet and ``LoadProgress`` will follow.
    """

    model_id: str
    needs_load: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """There is no room for the model yet: the place in the line (1 is next) and why."""

    position: int
    reason: str


RequestEvent = Accepted | Waiting | LoadProgress | GenerationEvent


async def serve(
    lease: Lease, request: GenerationRequest, *, max_queued: int
) -> AsyncGenerator[RequestEvent]:
    """The events of one request on a leased model; the lease stays the caller's to give back.

    ``Accepted`` comes first, as soon as nothing but the load or the engine itself can still
    refuse. Raises what loading and preparing raise, and ``QueueFullError`` if ``max_queued``
    requests wait at the engine already.
    """
    needs_load = False
    async for news in lease.loading():
        if not needs_load:
            needs_load = True
            yield Accepted(lease.model_id, needs_load=True)
        yield news
    # Bound once: should the operator unload it by force now, this engine says so itself.
    engine = lease.engine
    queued = engine.stats().queued_requests
    if queued >= max_queued:
        raise QueueFullError(lease.model_id, queued)
    is_bare = request.is_warm_up and not _asks_something(request)
    prepared = None if is_bare else await engine.prepare(request)
    if not needs_load:
        yield Accepted(lease.model_id, needs_load=False)
    if prepared is None or request.is_warm_up:
        prompt_tokens = len(prepared.prompt) if prepared else 0
        yield Finished(reason=FinishReason.STOP, prompt_tokens=prompt_tokens)
        return
    async with aclosing(engine.generate(prepared)) as events:
        async for event in events:
            yield event


def _asks_something(request: GenerationRequest) -> bool:
    """Many chat templates refuse a conversation in which nobody has asked anything yet."""
    return any(message.role != "system" for message in request.messages)
