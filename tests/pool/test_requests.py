"""Records of live requests and token rates, on a clock that stands still."""

from __future__ import annotations

import pytest

from omlx_tui.engines import Finished, FinishReason, LoadProgress, PrefillProgress, TextDelta
from omlx_tui.pool import Accepted, RequestState
from omlx_tui.pool.requests import RateMeter, RequestBoard
from tests.fakes import ManualClock


def test_a_rate_is_over_the_last_seconds_and_falls_to_zero() -> None:
    """What is older than the window counts no more."""
    clock = ManualClock()
    meter = RateMeter(clock, window_s=2.0)
    meter.add(10)
    clock.advance(1)
    meter.add(10)
    assert meter.tokens_per_s() == 10
    clock.advance(1.5)
    assert meter.tokens_per_s() == 5
    clock.advance(10)
    assert meter.tokens_per_s() == 0


def test_a_rate_that_nobody_reads_does_not_grow() -> None:
    """Headless, no console asks: old marks go as new ones come."""
    clock = ManualClock()
    meter = RateMeter(clock, window_s=2.0)
    for _ in range(1000):
        meter.add(1)
        clock.advance(0.5)
    assert len(meter._marks) <= 5


def test_a_record_follows_its_events() -> None:
    """From waiting over loading and prefill to decode, with its counts."""
    clock = ManualClock()
    board = RequestBoard(clock)
    record = board.open("r", "m", "anna")
    states = [record.state]
    for event in (
        Accepted("m", needs_load=True),
        LoadProgress(1, 2),
        PrefillProgress(3, 7),
        TextDelta("x", 1),
        TextDelta("yz", 3),
    ):
        board.note(record, event)
        states.append(record.state)
    assert states == [
        RequestState.WAITING,
        RequestState.LOADING,
        RequestState.LOADING,
        RequestState.PREFILL,
        RequestState.DECODE,
        RequestState.DECODE,
    ]
    (frozen,) = board.freeze()
    assert (frozen.prompt_tokens, frozen.prefilled_tokens, frozen.generated_tokens) == (7, 3, 3)
    assert board.tokens_per_s("m") == frozen.tokens_per_s == 1.0
    board.note(record, Finished(reason=FinishReason.STOP, prompt_tokens=7, generated_tokens=3))
    board.close(record)
    assert board.freeze() == ()


def test_one_id_is_live_once() -> None:
    """A second request of the same id is a mistake of the caller."""
    board = RequestBoard(ManualClock())
    board.open("r", "m", "anna")
    with pytest.raises(ValueError, match="already running"):
        board.open("r", "m", "bert")
