"""A pool that answers from scripts, and the helpers that the endpoint's tests share."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, connect

from omlx_tui.engines.types import (
    Finished,
    FinishReason,
    GenerationRequest,
    MemoryReading,
    PrefillProgress,
    TextDelta,
)
from omlx_tui.gateway import Gateway, GatewaySettings
from omlx_tui.pool.errors import ModelNotFoundError
from omlx_tui.pool.serving import Accepted, RequestEvent
from omlx_tui.pool.snapshot import ModelSnapshot, ModelState, PoolSnapshot

Frame = dict[str, Any]
Step = RequestEvent | Exception | asyncio.Event
"""Yield it, raise it, or wait for it."""

_ORACLE: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)

# Codes that clients act upon, though the official types' closed list does not have them.
_CODES_BEYOND_THE_ORACLE = {"server_is_overloaded", "context_length_exceeded"}


def answer(*words: str, needs_load: bool = False) -> list[Step]:
    """The script of an ordinary answer."""
    deltas = [TextDelta(word, count) for count, word in enumerate(words, 1)]
    finished = Finished(
        reason=FinishReason.STOP, prompt_tokens=5, generated_tokens=len(words), cached_tokens=2
    )
    return [Accepted("fake", needs_load), PrefillProgress(5, 5), *deltas, finished]


@dataclass
class Call:
    """One request that the pool got, and how it ended."""

    model_id: str
    request: GenerationRequest
    client: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    was_cancelled: bool = False


class FakePool:
    """Answers every prompt for a known model with that model's script."""

    def __init__(self, *model_ids: str) -> None:
        self.model_ids = model_ids or ("fake",)
        self.scripts: dict[str, Sequence[Step]] = {}
        self.script_for: Callable[[GenerationRequest], Sequence[Step]] | None = None
        self.problem = ""
        self.calls: list[Call] = []
        self._changed = asyncio.Condition()

    async def generate(
        self, model_id: str, request: GenerationRequest, *, client: str
    ) -> AsyncGenerator[RequestEvent, None]:
        call = Call(model_id, request, client)
        self.calls.append(call)
        try:
            async with self._changed:
                self._changed.notify_all()
            if model_id not in self.model_ids:
                raise ModelNotFoundError(model_id, self.model_ids)
            for step in self._script(model_id, request):
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step
                    await asyncio.sleep(0)
        except (asyncio.CancelledError, GeneratorExit):
            call.was_cancelled = True
            raise
        finally:
            call.ended.set()

    def _script(self, model_id: str, request: GenerationRequest) -> Sequence[Step]:
        if self.script_for is not None:
            return self.script_for(request)
        return self.scripts.get(model_id) or answer("Hel", "lo", "!")

    async def call(self, number: int) -> Call:
        """Wait for the ``number``-th request, counted from 0."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.calls) > number)
        return self.calls[number]

    def snapshot(self) -> PoolSnapshot:
        return PoolSnapshot(
            seq=1,
            taken_s=0.0,
            wall_s=0.0,
            budget_bytes=100,
            held_bytes=0,
            peak_held_bytes=0,
            memory=MemoryReading(),
            models=tuple(model_snapshot(model_id) for model_id in self.model_ids),
            requests=(),
            tokens_per_s=0.0,
            evictions=0,
            last_event_seq=0,
            problem=self.problem,
        )

    def default_model_id(self) -> str | None:
        return next(iter(self.model_ids), None)


def model_snapshot(model_id: str, *, problem: str = "", is_pinned: bool = False) -> ModelSnapshot:
    """A model that is not in memory."""
    return ModelSnapshot(
        model_id=model_id,
        path=f"/models/{model_id}",
        model_type="llama",
        state=ModelState.UNLOADED,
        is_servable=not problem,
        is_pinned=is_pinned,
        is_next_victim=False,
        lru_rank=None,
        last_access_s=None,
        weights_bytes=40,
        weights_measured=False,
        headroom_bytes=10,
        held_bytes=0,
        kv_bytes=0,
        active_requests=0,
        queued_requests=0,
        leases=0,
        tokens_per_s=0.0,
        load=None,
        problem=problem,
    )


def validated(frame: Frame) -> Frame:
    """Return a frame that the official client's own types accept; fail on any other.

    Types of ours (``omlx:…``) are not theirs to judge.
    """
    if frame["type"].startswith("omlx:"):
        return frame
    judged = json.loads(json.dumps(frame))
    error = judged.get("response", {}).get("error")
    if error and error["code"] in _CODES_BEYOND_THE_ORACLE:
        error["code"] = "server_error"
    _ORACLE.validate_python(judged)
    return frame


@contextlib.asynccontextmanager
async def serving(
    pool: FakePool, settings: GatewaySettings | None = None
) -> AsyncGenerator[Gateway, None]:
    """A gateway on a free port of loopback, closed at the end."""
    gateway = Gateway(pool, settings=settings)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.close(drain_s=0)


class Client:
    """A client without manners: sends what it is told to, and checks what comes back."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, frame: Frame | str) -> None:
        await self.socket.send(frame if isinstance(frame, str) else json.dumps(frame))

    async def create(self, text: str = "Hello!", **fields: Any) -> None:
        await self.send({"type": "response.create", "model": "fake", "input": text} | fields)

    async def frame(self) -> Frame:
        return validated(json.loads(await self.socket.recv()))

    async def until(self, *kinds: str) -> list[Frame]:
        """Read frames up to the first of one of these types."""
        frames = [await self.frame()]
        while frames[-1]["type"] not in kinds:
            frames.append(await self.frame())
        return frames

    async def answer(self) -> list[Frame]:
        """Read frames up to the next end of a request."""
        return await self.until(
            "response.completed", "response.incomplete", "response.failed", "error"
        )


@contextlib.asynccontextmanager
async def connected(gateway: Gateway, **options: Any) -> AsyncGenerator[Client, None]:
    """A client of ``gateway``."""
    async with connect(gateway.url, proxy=None, **options) as socket:
        yield Client(socket)


def text_of(frames: Sequence[Frame]) -> str:
    """The text that was streamed in these frames."""
    return "".join(f["delta"] for f in frames if f["type"] == "response.output_text.delta")


def kinds_of(frames: Sequence[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]
