"""The event log: bounded, and never pulled from under a reader."""

from __future__ import annotations

from omlx_tui.console.lines import line_cells
from omlx_tui.console.panels.events import MAX_EVENTS, EventsView, event_lines
from omlx_tui.console.source import Frame
from omlx_tui.pool import events

from . import fakes
from .driving import Console, running, show


def log(first: int, last: int) -> Frame:
    return fakes.frame(
        log=tuple(fakes.asked(seq, f"model-{seq}") for seq in range(first, last + 1))
    )


def rows(app: Console) -> list[str]:
    """The lines in the event panel, without border and scrollbar."""
    return [line[1:-2] for line in app.text().splitlines()[18:22]]


def view(app: Console) -> EventsView:
    return app.main_screen.query_one(EventsView)


async def test_the_tail_is_followed() -> None:
    """As long as nobody scrolls, the latest event is in sight."""
    async with running(log(1, 100), (80, 24)) as (app, pilot):
        assert "model-100" in app.text()
        await show(app, pilot, log(1, 130))
        assert "model-130" in app.text()


async def test_the_tail_is_not_stolen() -> None:
    """A reader who scrolled up keeps his lines while events come, and End takes him back."""
    async with running(log(1, 100), (80, 24)) as (app, pilot):
        await pilot.press("4", "pageup", "pageup")
        await pilot.pause()
        before = rows(app)
        assert "newer below" in app.text()
        await show(app, pilot, log(1, 120))
        assert rows(app) == before
        await pilot.press("end")
        await pilot.pause()
        assert "model-120" in app.text()
        assert "newer below" not in app.text()
        await show(app, pilot, log(1, 121))
        assert "model-121" in app.text()


async def test_the_readers_place_survives_dropped_lines() -> None:
    """When the oldest events leave the log, the lines being read don't move."""
    async with running(log(1, 100), (80, 24)) as (app, pilot):
        await pilot.press("4", "pageup")
        await pilot.pause()
        before = rows(app)
        await show(app, pilot, log(31, 140))
        assert rows(app) == before


async def test_the_tail_survives_a_resize() -> None:
    """A new size wraps the lines anew and still shows the latest one."""
    async with running(log(1, 100), (120, 40)) as (app, pilot):
        for size in ((80, 24), (61, 30), (200, 60), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert "model-100" in app.text(), size


async def test_the_log_is_bounded() -> None:
    """However many events a host keeps, the console holds a limited number."""
    async with running(log(1, 3 * MAX_EVENTS), (120, 40)) as (app, _):
        assert len(view(app).lines) <= MAX_EVENTS
        assert f"model-{3 * MAX_EVENTS}" in app.text()


async def test_an_eviction_says_why_and_what_it_freed() -> None:
    """Also on a narrow terminal no part of it is cut off."""
    async with running(fakes.evicting(), (80, 24)) as (app, _):
        text = " ".join(app.text().split())
        assert "evicted mixtral-1m-4bit for phi3-1m-bf16: least recently used" in text
        assert "freed 2.3 MB" in text


def test_a_problem_is_marked_by_a_glyph() -> None:
    """A problem has a '!', an ordinary event none."""
    failed = events.LoadFailed(**fakes.at(1), model_id="m", reason="why")
    assert event_lines(failed, 80)[0][1].text == "! "
    assert event_lines(fakes.found(), 80)[0][1].text == "○ "


def test_time_is_a_clock_time() -> None:
    """Events carry hours, minutes and seconds."""
    assert event_lines(fakes.found(), 80)[0][0].text == "08:53:27 "


def test_a_long_event_is_bounded() -> None:
    """An endless reason takes three lines, none wider than the panel, and says it goes on."""
    endless = events.LoadFailed(**fakes.at(1), model_id="m", reason="why 狐狸 " * 1000)
    for width in (20, 57, 80, 118):
        lines = event_lines(endless, width)
        assert len(lines) == 3
        assert all(line_cells(line) <= width for line in lines)
        assert lines[-1][-1].text.endswith("…")
