"""Lanes of one connection: first come, first served in a lane, all lanes at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from omlx_tui.gateway.problems import Problem, ProtocolError, invalid

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """How much one connection may ask for.

    Attributes:
        in_flight: requests that run or wait for their turn, over all lanes.
        named: different lanes in the life of the connection.
    """

    in_flight: int = 16
    named: int = 32


@dataclass(slots=True)
class _Lane(Generic[T]):
    waiting: deque[T] = field(default_factory=deque[T])
    is_busy: bool = False


class Lanes(Generic[T]):
    """Whose turn it is. ``None`` names the default lane, which always exists.

    A turn goes ``join → begin → end``; the lane serves nobody else between the last two.
    """

    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._lanes: dict[str | None, _Lane[T]] = {None: _Lane()}
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def join(self, stream_id: str | None, turn: T) -> None:
        """Line up at the end of a lane.

        Raises:
            ProtocolError: the connection has too much in flight, or too many lanes.
        """
        if self._in_flight >= self._limits.in_flight:
            raise ProtocolError(
                Problem(
                    status=429,
                    type="rate_limit_error",
                    code="rate_limit_exceeded",
                    message=(
                        f"This connection has {self._in_flight} requests in flight, the most it "
                        "may have. Wait for one to end."
                    ),
                    retry_after_s=1,
                )
            )
        if stream_id not in self._lanes:
            # The default lane has no name, and does not count.
            if len(self._lanes) > self._limits.named:
                raise invalid(
                    "invalid_stream_id",
                    f"This connection has used {self._limits.named} lanes, the most it may have. "
                    "Use one of them again, or open another connection.",
                    param="stream_id",
                )
            self._lanes[stream_id] = _Lane()
        self._lanes[stream_id].waiting.append(turn)
        self._in_flight += 1

    def begin(self, stream_id: str | None) -> T | None:
        """Take the next turn, if the lane is free and somebody waits."""
        lane = self._lanes[stream_id]
        if lane.is_busy or not lane.waiting:
            return None
        lane.is_busy = True
        return lane.waiting.popleft()

    def end(self, stream_id: str | None) -> None:
        """Give the lane back."""
        lane = self._lanes[stream_id]
        if not lane.is_busy:
            raise RuntimeError("a turn ends once")
        lane.is_busy = False
        self._in_flight -= 1
