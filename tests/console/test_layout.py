"""Sizes: from a sliver to a wall."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omlx_tui.console.source import Frame

from . import fakes
from .driving import running

SCENES = [fakes.empty, fakes.loaded, fakes.loading, fakes.evicting, fakes.error, lambda: None]


@pytest.mark.parametrize("scene", SCENES)
async def test_any_size_is_survived(scene: Callable[[], Frame | None]) -> None:
    """From 20x5 to 250x80 and back nothing crashes, and the models come back with the room."""
    async with running(scene(), (80, 24)) as (app, pilot):
        for size in ((20, 5), (250, 80), (1, 1), (60, 15), (59, 15), (75, 19), (76, 20), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert "1 models" in app.text()
        assert app.focused is app.main_screen.models.keyboard_target


@pytest.mark.parametrize("key", ["question_mark", "q", "u"])
async def test_dialogs_survive_any_size(key: str) -> None:
    """A dialog that is open while the terminal shrinks does not take the console down."""
    async with running(fakes.loaded(), (80, 24)) as (app, pilot):
        await pilot.press(key)
        for size in ((20, 5), (3, 2), (250, 80), (60, 15)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await pilot.press("escape")
        assert app.screen is app.main_screen


@pytest.mark.parametrize("size", [(59, 30), (120, 14), (20, 5)])
async def test_a_terminal_that_is_too_small_is_told(size: tuple[int, int]) -> None:
    """Below 60x15 there is one message instead of a mess."""
    async with running(fakes.loaded(), size) as (app, _):
        text = " ".join(app.text().split())
        assert f"This terminal is {size[0]}x{size[1]}." in text
        assert "needs 60x15" in text
        assert "models" not in text


async def test_a_short_terminal_shows_the_panel_asked_for() -> None:
    """With no room for four panels, the number keys choose who stands under the models."""
    async with running(fakes.loaded(), (60, 15)) as (app, pilot):
        assert "4 events" in app.text()
        await pilot.press("3")
        await pilot.pause()
        assert "3 requests" in app.text()
        assert "4 events" not in app.text()
        assert app.focused is app.main_screen.requests.keyboard_target
        await pilot.press("2")
        await pilot.pause()
        assert "2 memory" in app.text()
        assert "1 models" in app.text()


@pytest.mark.parametrize("width", range(60, 131, 7))
async def test_the_header_collapses(width: int) -> None:
    """The header never loses the totals, and never writes past the edge."""
    async with running(fakes.loaded(), (width, 24)) as (app, _):
        header = app.text().splitlines()[0]
        assert "3/5" in header
        assert "2 act" in header
        assert "1 que" in header
        assert "84.2 t" in header
        assert len(header) == width


async def test_requests_say_how_to_begin() -> None:
    """With no request there is a line to copy."""
    async with running(fakes.empty(), (120, 40)) as (app, _):
        assert 'omlx-tui prompt "Tell me a story about a fox"' in app.text()
        assert "--models DIR" in app.text()
