"""The event log: numbered, bounded, and heard."""

from __future__ import annotations

from omlx_tui.pool.events import EventLog, PinChanged, PoolEvent


def pinned(log: EventLog, model_id: str) -> PoolEvent:
    event = PinChanged(seq=log.next_seq(), wall_s=0, mono_s=0, model_id=model_id, is_pinned=True)
    log.append(event)
    return event


def test_the_ring_keeps_the_latest_and_their_numbers() -> None:
    """Old events leave, numbers go on."""
    log = EventLog(capacity=2)
    for model_id in "abc":
        pinned(log, model_id)
    assert [event.seq for event in log.after(0)] == [2, 3]
    assert [event.seq for event in log.after(2)] == [3]
    assert log.last_seq == 3


def test_subscribers_hear_each_event_until_they_leave() -> None:
    """Leaving twice is harmless."""
    log = EventLog()
    heard: list[PoolEvent] = []
    leave = log.subscribe(heard.append)
    first = pinned(log, "a")
    leave()
    leave()
    pinned(log, "b")
    assert heard == [first]
    assert first.describe() == "pinned a"


def test_a_listener_that_fails_harms_nobody() -> None:
    """The event is kept and the next listener hears it."""

    def broken(event: PoolEvent) -> None:
        raise RuntimeError(event.describe())

    log = EventLog()
    heard: list[PoolEvent] = []
    log.subscribe(broken)
    log.subscribe(heard.append)
    event = pinned(log, "a")
    assert heard == [event] == list(log.after(0))
