"""Whose turn it is."""

from __future__ import annotations

import pytest

from omlx_tui.gateway.lanes import LaneLimits, Lanes
from omlx_tui.gateway.problems import ProtocolError


def test_a_lane_serves_one_at_a_time_in_order() -> None:
    """The second in a lane begins when the first one has ended."""
    lanes: Lanes[str] = Lanes(LaneLimits())
    lanes.join(None, "first")
    lanes.join(None, "second")
    assert lanes.begin(None) == "first"
    assert lanes.begin(None) is None
    lanes.end(None)
    assert lanes.begin(None) == "second"


def test_lanes_do_not_wait_for_each_other() -> None:
    """Named lanes and the default one begin at once."""
    lanes: Lanes[str] = Lanes(LaneLimits())
    for name in (None, "a", "b"):
        lanes.join(name, f"in {name}")
    assert [lanes.begin(name) for name in ("b", None, "a")] == ["in b", "in None", "in a"]


def test_in_flight_counts_running_and_waiting() -> None:
    """The limit holds over all lanes and is given back at the end of a turn."""
    lanes: Lanes[int] = Lanes(LaneLimits(in_flight=2))
    lanes.join("a", 1)
    lanes.join("a", 2)
    with pytest.raises(ProtocolError) as caught:
        lanes.join("b", 3)
    assert caught.value.problem.code == "rate_limit_exceeded"
    lanes.begin("a")
    lanes.end("a")
    assert lanes.in_flight == 1
    lanes.join("b", 3)


def test_named_lanes_are_limited_over_the_life_of_the_connection() -> None:
    """One lane too many is refused, known ones and the default one go on."""
    lanes: Lanes[int] = Lanes(LaneLimits(named=2))
    lanes.join("a", 1)
    lanes.join("b", 2)
    with pytest.raises(ProtocolError) as caught:
        lanes.join("c", 3)
    assert caught.value.problem.code == "invalid_stream_id"
    lanes.join("a", 4)
    lanes.join(None, 5)
    assert lanes.in_flight == 4


def test_a_turn_ends_once() -> None:
    """A lane that is free can't be given back."""
    lanes: Lanes[int] = Lanes(LaneLimits())
    with pytest.raises(RuntimeError):
        lanes.end(None)
