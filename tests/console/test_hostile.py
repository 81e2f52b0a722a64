"""Hostile text in every place of the console that shows text from outside."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest

from omlx_tui.console.screens.confirm import ConfirmScreen
from omlx_tui.console.source import Frame
from omlx_tui.engines.types import FinishReason
from omlx_tui.pool import events
from omlx_tui.pool.snapshot import ModelState, RequestState

from .driving import Console, running, show
from .fakes import at, busy, frame, model, request, resident
from .hostile import HOSTILE


def poisoned(text: str) -> Frame:
    """The text as model id, path, type, problem, client, host, endpoint and in events."""
    log = (
        events.ModelsDiscovered(**at(1), found=1, servable=1, root=text),
        events.LoadStarted(**at(2), model_id=text, footprint_bytes=1, victims=(text, text)),
        events.LoadFailed(**at(3), model_id=text, reason=text),
        events.RequestFinished(
            **at(4),
            request_id=text,
            model_id=text,
            client=text,
            reason=FinishReason.STOP,
            generated_tokens=1,
            took_s=1.0,
        ),
        events.RequestRefused(**at(5), request_id=text, model_id=text, client=text, reason=text),
    )
    models = (
        busy(text, rank=1, model_type=text, path=text),
        resident(text + "2", rank=0, idle_s=5, is_next_victim=True, is_pinned=True),
        model(text + "3", ModelState.FAILED, problem=text, path=text, model_type=text),
        model(text + "4", is_servable=False, problem=text),
    )
    requests = (
        request(text, text, client=text),
        request(text + "2", text, RequestState.WAITING, client=text),
    )
    picture = frame(*models, requests=requests, log=log)
    return replace(picture, host_name=text, endpoint=f"ws://{text}/v1/responses")


def assert_clean(app: Console) -> None:
    """Nothing on the screen that a terminal would act on or hide."""
    for character in app.text():
        category = unicodedata.category(character)
        assert character == "\n" or category[0] in "LMNPS" or character == " ", hex(ord(character))


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_every_panel_survives(size: tuple[int, int]) -> None:
    """Panels and borders show the text and nothing else happens, wherever the cursor is."""
    async with running(None, size) as (app, pilot):
        for text in HOSTILE:
            await show(app, pilot, poisoned(text))
            await pilot.press("j")
            assert_clean(app)
        assert app.is_running


async def test_dialogs_and_notifications_survive() -> None:
    """A question about a hostile model, and its error, are shown as plain text."""
    async with running(None, (100, 30)) as (app, pilot):
        for text in HOSTILE:
            app.fake.error = RuntimeError(text)
            await show(app, pilot, poisoned(text))
            await pilot.press("g", "u")
            assert isinstance(app.screen, ConfirmScreen)
            assert_clean(app)
            await pilot.press("y")
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert app.messages()
            assert_clean(app)
            app.clear_notifications()
        assert app.is_running


async def test_two_rows_of_one_key_are_no_crash() -> None:
    """A source that repeats an id costs a row, not the console."""
    picture = frame(model("a"), model("a"), requests=(request("r", "a"), request("r", "a")))
    async with running(picture) as (app, _):
        assert app.main_screen.models.keyboard_target.is_attached
        assert "on disk" in app.text()
