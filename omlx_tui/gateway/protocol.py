"""The Responses protocol of one connection, without I/O: frames in, effects out.

The shell (``connection.py``) reads frames, carries out effects and reports what the pool said. It
decides nothing; everything a client can observe is decided here and tested without a socket.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from omlx_tui.engines.types import GenerationRequest
from omlx_tui.gateway import frames
from omlx_tui.gateway.commands import (
    CancelResponse,
    Command,
    CreateResponse,
    RefusedCreate,
    SteerResponse,
)
from omlx_tui.gateway.conversations import Conversations, Messages
from omlx_tui.gateway.inputs import parse_frame
from omlx_tui.gateway.lanes import LaneLimits, Lanes
from omlx_tui.gateway.messages import as_conversation
from omlx_tui.gateway.problems import (
    CLOSING_MESSAGE,
    INTERNAL_MESSAGE,
    Failure,
    JsonObject,
    ProtocolError,
    failure_of,
    invalid,
    overloaded,
    problem_of,
)
from omlx_tui.gateway.responses import ResponseStream
from omlx_tui.pool.serving import RequestEvent

# Enough for a cancel that crosses the end of its response on the wire.
_REMEMBERED_ENDS = 64


@dataclass(frozen=True, slots=True)
class Send:
    """Put this text frame into the connection's outbox."""

    text: str


@dataclass(frozen=True, slots=True)
class Start:
    """Ask the pool; report with ``on_event`` and, in any case and last, ``on_ended``."""

    response_id: str
    model_id: str
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel what was started; its ``on_ended`` is still awaited."""

    response_id: str


Effect = Send | Start | Stop


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


class ResponsesProtocol:
    """One connection's requests.

    Every method returns the effects to carry out, in order. A response that has ended may go on
    working for a moment (a cancelled one until the pool lets go): its lane is free again only at
    ``on_ended``, so that a client can't pile up work by creating and cancelling.

    Args:
        default_model: the model for requests that name none, asked for when their turn comes.
        clock: monotonic seconds.
        wall: seconds since the epoch.
        new_id: makes an id that starts with the given prefix.
    """

    def __init__(
        self,
        *,
        default_model: Callable[[], str | None],
        limits: LaneLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        new_id: Callable[[str], str] = _new_id,
    ) -> None:
        self._default_model = default_model
        self._clock = clock
        self._wall = wall
        self._new_id = new_id
        self._lanes: Lanes[CreateResponse | RefusedCreate] = Lanes(limits or LaneLimits())
        self._running: dict[str, ResponseStream] = {}
        self._asked: dict[str, Messages] = {}
        self._conversations = Conversations()
        self._ended_ids: deque[str] = deque(maxlen=_REMEMBERED_ENDS)
        self._steers = 0
        self._is_draining = False
        self._effects: list[Effect] = []

    @property
    def in_flight(self) -> int:
        """Requests that run or wait for their turn."""
        return self._lanes.in_flight

    def receive(self, data: str | bytes) -> list[Effect]:
        """A frame came from the client."""
        try:
            self._obey(parse_frame(data))
        except ProtocolError as error:
            self._send([frames.error_frame(error.problem, error.stream_id)])
        return self._take_effects()

    def on_event(self, response_id: str, event: RequestEvent) -> list[Effect]:
        """The pool reported on a request."""
        stream = self._running[response_id]
        self._send(stream.feed(event))
        if stream.is_answered and response_id in self._asked:
            # Not later: the client may go on from it in another lane as soon as it has read this.
            messages = self._asked.pop(response_id)
            said = stream.message()
            if said is not None:
                messages = (*messages, said)
            self._conversations.keep(stream.stream_id, response_id, messages)
        return self._take_effects()

    def on_ended(self, response_id: str, error: Exception | None = None) -> list[Effect]:
        """The work on a request is over, with ``error`` if the pool raised; its lane goes on."""
        stream = self._running.pop(response_id)
        self._asked.pop(response_id, None)
        self._ended_ids.append(response_id)
        self._send(self._last_frames(stream, error))
        self._lanes.end(stream.stream_id)
        self._advance(stream.stream_id)
        return self._take_effects()

    def drain(self) -> None:
        """Begin nothing new; what runs may finish, what waits is refused at its turn."""
        self._is_draining = True

    def cancel_all(self) -> list[Effect]:
        """End everything that runs, each with its terminal frame."""
        for stream in self._running.values():
            if stream.is_ended:
                continue
            if stream.is_open:
                self._send(stream.cancel())
            else:
                self._send(stream.refuse(overloaded(CLOSING_MESSAGE)))
            self._effects.append(Stop(stream.response_id))
        return self._take_effects()

    def _obey(self, command: Command) -> None:
        match command:
            case CreateResponse() | RefusedCreate():
                self._line_up(command)
            case CancelResponse():
                self._cancel(command)
            case SteerResponse():
                self._send([frames.steer_failed_frame(command, self._steers)])
                self._steers += 1

    def _line_up(self, command: CreateResponse | RefusedCreate) -> None:
        try:
            self._lanes.join(command.stream_id, command)
        except ProtocolError as error:
            self._send([frames.error_frame(error.problem, command.stream_id)])
        else:
            self._advance(command.stream_id)

    def _advance(self, stream_id: str | None) -> None:
        """Begin the lane's next turn; refused ones are over at once."""
        while (turn := self._lanes.begin(stream_id)) is not None:
            try:
                self._begin(turn)
            except ProtocolError as error:
                self._send([frames.error_frame(error.problem, stream_id)])
                self._lanes.end(stream_id)
            else:
                return

    def _begin(self, turn: CreateResponse | RefusedCreate) -> None:
        if isinstance(turn, RefusedCreate):
            raise ProtocolError(turn.problem)
        if self._is_draining:
            raise ProtocolError(overloaded(CLOSING_MESSAGE))
        model_id = turn.model or self._default_model()
        if model_id is None:
            raise invalid(
                "missing_required_parameter",
                "`model` is missing, and this host has no model that it could choose.",
                param="model",
            )
        messages = self._conversations.up_to(turn.previous_response_id) + turn.messages
        if not messages and not turn.is_warm_up:
            raise invalid("invalid_value", "There is nothing to answer in `input`.", param="input")
        self._start(turn, model_id, messages)

    def _start(self, create: CreateResponse, model_id: str, messages: Messages) -> None:
        conversation = as_conversation(messages, create.instructions)
        response_id = self._new_id("resp")
        self._running[response_id] = ResponseStream(
            create,
            response_id=response_id,
            model=model_id,
            clock=self._clock,
            wall=self._wall,
            new_id=self._new_id,
        )
        request = GenerationRequest(
            request_id=response_id,
            messages=conversation,
            max_tokens=create.max_output_tokens,
            sampling=create.sampling,
            stop=create.stop,
            tools=create.offered_tools,
            parallel_tool_calls=create.parallel_tool_calls,
            thinking=create.thinking,
            top_logprobs=create.top_logprobs,
            is_warm_up=create.is_warm_up,
        )
        self._asked[response_id] = messages
        self._effects.append(Start(response_id, model_id, request))

    def _cancel(self, command: CancelResponse) -> None:
        if command.response_id in self._ended_ids:
            return
        stream = self._find_running(command)
        if stream is None or not (stream.is_open or stream.is_ended):
            # Neither is an id that the client was not told yet there to be cancelled.
            problem = invalid(
                "response_not_found",
                "No such response is running on this connection.",
                param="response_id",
            ).problem
            self._send([frames.error_frame(problem, command.stream_id)])
        elif stream.is_open:
            self._send(stream.cancel())
            self._effects.append(Stop(stream.response_id))

    def _find_running(self, command: CancelResponse) -> ResponseStream | None:
        if command.response_id is not None:
            return self._running.get(command.response_id)
        streams = self._running.values()
        return next((s for s in streams if s.stream_id == command.stream_id), None)

    def _last_frames(self, stream: ResponseStream, error: Exception | None) -> list[JsonObject]:
        if stream.is_ended:
            return []
        if stream.is_open:
            failure = failure_of(error) if error else Failure("server_error", INTERNAL_MESSAGE)
            return stream.fail(failure)
        return stream.refuse(problem_of(error or RuntimeError("the pool said nothing")))

    def _send(self, new_frames: list[JsonObject]) -> None:
        self._effects += [Send(frames.encode(frame)) for frame in new_frames]

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
