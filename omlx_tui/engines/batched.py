"""The host's side of a resident language model: streams of text out of the MLX thread's tokens."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import suppress

from omlx_tui.engines.admission import KVAdmission
from omlx_tui.engines.answers import AnswerReader, Piece
from omlx_tui.engines.commands import (
    Abort,
    Command,
    FailedOutput,
    LimitKV,
    PrefillOutput,
    StepOutput,
    Stepped,
    Submit,
    TokenOutput,
)
from omlx_tui.engines.errors import EngineClosedError
from omlx_tui.engines.kv import KVCosts
from omlx_tui.engines.prompts import Prompter
from omlx_tui.engines.types import (
    AnswerDelta,
    EngineStats,
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    PrefillProgress,
    PreparedRequest,
    ReasoningDelta,
    TextDelta,
    ToolCalled,
)


class BatchedEngine:
    """One language model, served by mlx-lm's continuous batching.

    Used on the host's loop only. It holds no reference to the model, which lives on the MLX
    thread: only a key, the tokenizer and the streams of the running requests. A request goes to
    that thread when it fits the KV budget; until then it waits here.
    """

    def __init__(
        self,
        model_id: str,
        engine_key: int,
        prompter: Prompter,
        *,
        weights_bytes: int,
        kv_costs: KVCosts,
        send: Callable[[Command], None],
        executor: Executor,
    ) -> None:
        self.model_id = model_id
        self.engine_key = engine_key
        self.weights_bytes = weights_bytes
        self.kv_costs = kv_costs
        self._prompter = prompter
        self._send = send
        self._executor = executor
        self._admission = KVAdmission(model_id, kv_costs)
        self._streams: dict[str, _Stream] = {}
        self._unsent: dict[str, Submit] = {}
        self._kv_bytes = 0
        self._prefix_cache_bytes = 0
        self._generated_tokens = 0
        self._closed_because = ""

    @property
    def context_tokens(self) -> int:
        return self._prompter.context_tokens

    @property
    def kv_budget_bytes(self) -> int | None:
        return self._admission.budget_bytes

    def set_kv_budget(self, budget_bytes: int | None) -> None:
        self._admission.budget_bytes = budget_bytes
        # Kept prefixes stay inside what was given; only requests that run may need the floor.
        self._send(LimitKV(self.engine_key, budget_bytes))
        self._send_admitted()

    def stats(self) -> EngineStats:
        live = [stream for stream in self._streams.values() if not stream.has_ended]
        running = sum(stream.has_started for stream in live)
        return EngineStats(
            active_requests=running,
            queued_requests=len(live) - running,
            kv_bytes=self._kv_bytes,
            prefix_cache_bytes=self._prefix_cache_bytes,
            generated_tokens=self._generated_tokens,
        )

    def has_active_requests(self) -> bool:
        return any(not stream.has_ended for stream in self._streams.values())

    async def prepare(self, request: GenerationRequest) -> PreparedRequest:
        loop = asyncio.get_running_loop()
        prepared = await loop.run_in_executor(self._executor, self._prompter.prepare, request)
        return self._admission.settle(prepared)

    async def generate(self, prepared: PreparedRequest) -> AsyncGenerator[GenerationEvent]:
        request = prepared.request
        stream = self._open_stream(prepared)
        try:
            while True:
                event = await stream.next_event()
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            del self._streams[request.request_id]
            if not stream.has_ended:
                self._withdraw(request.request_id)

    def abort(self, request_id: str) -> None:
        stream = self._streams.get(request_id)
        if stream is not None and not stream.has_ended:
            stream.end(FinishReason.ABORTED, "aborted by the operator")
            self._withdraw(request_id)

    def receive(self, step: Stepped) -> None:
        """Take in one step of the MLX thread. Outputs of requests that have ended are dropped."""
        self._kv_bytes = step.kv_bytes
        self._prefix_cache_bytes = step.prefix_cache_bytes
        for output in step.outputs:
            stream = self._streams.get(output.request_id)
            if stream is None or stream.has_ended:
                continue
            try:
                self._take(stream, output)
            except Exception as error:  # noqa: BLE001 - a tokenizer's fault is one request's end
                stream.end(FinishReason.ERROR, f"its text can't be read: {error!r}")
                self._withdraw(output.request_id)
                continue
            if stream.has_ended:
                self._settle(output)

    def _take(self, stream: _Stream, output: StepOutput) -> None:
        match output:
            case PrefillOutput():
                stream.prefilled(output.processed_tokens, output.cached_tokens)
            case FailedOutput():
                stream.end(FinishReason.ERROR, output.detail)
            case TokenOutput():
                self._generated_tokens += 1
                stream.take_token(output)

    def close(self, reason: FinishReason, detail: str) -> None:
        """End every stream; the engine takes no more requests."""
        self._closed_because = detail
        self._kv_bytes = self._prefix_cache_bytes = 0
        self._admission.clear()
        self._unsent.clear()
        for stream in tuple(self._streams.values()):
            stream.end(reason, detail)

    def _open_stream(self, prepared: PreparedRequest) -> _Stream:
        request = prepared.request
        if self._closed_because:
            raise EngineClosedError(
                f"{self.model_id} went before the request began: {self._closed_because}."
            )
        if request.request_id in self._streams:
            raise ValueError(f"request id {request.request_id!r} is already running")
        # Outside the seeded path on purpose: who sets no seed wants another answer each time.
        sampling = self._prompter.resolve(
            request.sampling,
            fallback_seed=random.getrandbits(32),
        )
        stream = _Stream(len(prepared.prompt), self._prompter.reader(prepared))
        self._streams[request.request_id] = stream
        self._unsent[request.request_id] = Submit(
            engine_key=self.engine_key,
            request_id=request.request_id,
            prompt=prepared.prompt,
            max_tokens=prepared.max_tokens,
            stop_tokens=self._prompter.stop_tokens,
            sampling=sampling,
            top_logprobs=request.top_logprobs,
        )
        self._admission.enqueue(prepared)
        self._send_admitted()
        return stream

    def _settle(self, output: StepOutput) -> None:
        """A request has ended with this output: its room is free."""
        if isinstance(output, TokenOutput) and output.ended is None:
            # A stop string ended the answer; the batch does not know of it yet.
            self._withdraw(output.request_id)
            return
        self._admission.withdraw(output.request_id)
        self._send_admitted()

    def _withdraw(self, request_id: str) -> None:
        """Take a request back, from the queue here or from the batch, and let others have its room.

        In this order: the batch is smaller before the next one joins it.
        """
        self._unsent.pop(request_id, None)
        if self._admission.withdraw(request_id):
            self._send(Abort(self.engine_key, request_id))
        self._send_admitted()

    def _send_admitted(self) -> None:
        for request_id in self._admission.admit():
            self._send(self._unsent.pop(request_id))


class _Stream:
    """One request's events, waiting for its consumer.

    Text that the consumer has not fetched yet is merged, so a slow one costs no memory.
    """

    def __init__(self, prompt_tokens: int, reader: AnswerReader) -> None:
        self._prompt_tokens = prompt_tokens
        self._reader = reader
        self._generated_tokens = 0
        self._cached_tokens = 0
        self._pending: deque[GenerationEvent] = deque()
        self._has_pending = asyncio.Event()
        self.has_started = False
        self.has_ended = False

    async def next_event(self) -> GenerationEvent:
        await self._has_pending.wait()
        event = self._pending.popleft()
        if not self._pending:
            self._has_pending.clear()
        return event

    def prefilled(self, processed_tokens: int, cached_tokens: int) -> None:
        self.has_started = True
        self._cached_tokens = cached_tokens
        self._push(PrefillProgress(processed_tokens, self._prompt_tokens))

    def take_token(self, output: TokenOutput) -> None:
        self.has_started = True
        self._generated_tokens += 1
        if output.ended == "stop":
            self._push_pieces([])
            self.end(FinishReason.STOP)
            return
        self._push_pieces(self._reader.feed(output.token, output.logprobs))
        if self._reader.is_stopped:
            self.end(FinishReason.STOP)
        elif output.ended is not None:
            self.end(FinishReason.LENGTH)

    def end(self, reason: FinishReason, detail: str = "") -> None:
        """Push the one terminal event; later calls change nothing."""
        if self.has_ended:
            return
        self.has_ended = True
        with suppress(Exception):  # what is held back may be lost, the end may not
            if rest := self._reader.finish():
                self._push_pieces(rest)
        self._push(
            Finished(
                reason=reason,
                prompt_tokens=self._prompt_tokens,
                generated_tokens=self._generated_tokens,
                cached_tokens=self._cached_tokens,
                reasoning_tokens=self._reader.reasoning_tokens,
                detail=detail,
            )
        )

    def _push_pieces(self, pieces: list[Piece]) -> None:
        """Also when there are none: how many tokens there are is news as well."""
        for piece in pieces:
            self._push_delta(self._delta(piece))
        if not pieces:
            self._push_delta(TextDelta("", self._generated_tokens))

    def _delta(self, piece: Piece) -> AnswerDelta:
        if piece.call is not None:
            return ToolCalled(piece.call, self._generated_tokens)
        if piece.kind == "reasoning":
            return ReasoningDelta(piece.text, self._generated_tokens)
        return TextDelta(piece.text, self._generated_tokens, piece.logprobs)

    def _push_delta(self, delta: AnswerDelta) -> None:
        match self._pending[-1] if self._pending else None, delta:
            case TextDelta() as last, TextDelta():
                self._pending.pop()
                logprobs = last.logprobs + delta.logprobs
                delta = TextDelta(last.text + delta.text, delta.generated_tokens, logprobs)
            case ReasoningDelta() as last, ReasoningDelta():
                self._pending.pop()
                delta = ReasoningDelta(last.text + delta.text, delta.generated_tokens)
            case _:
                pass
        self._push(delta)

    def _push(self, event: GenerationEvent) -> None:
        self._pending.append(event)
        self._has_pending.set()
