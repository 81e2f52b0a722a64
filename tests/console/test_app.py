"""Keys, commands and dialogs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omlx_tui.console.screens.confirm import ConfirmScreen
from omlx_tui.console.screens.help import HelpScreen

from . import fakes
from .driving import Console, running, show


def cursor(app: Console) -> str | None:
    model = app.main_screen.models.cursor_model
    return None if model is None else model.model_id


@pytest.mark.parametrize("key", ["l", "enter"])
async def test_load_asks_the_source(key: str) -> None:
    """``l`` and Enter load the model at the cursor."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press("j", "j", "j", key)
        await app.workers.wait_for_complete()
        assert app.fake.calls == [("load", "mixtral-1m-4bit")]


async def test_a_resident_model_is_not_loaded_again() -> None:
    """Load is greyed out on a model that is in memory, and the key does nothing."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press("l", "enter")
        assert app.fake.calls == []
        assert app.check_action("load", ()) is None


async def test_unload_of_an_idle_model_does_not_ask() -> None:
    """``u`` on an idle model unloads it, without force."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press("j", "u")
        await app.workers.wait_for_complete()
        assert app.fake.calls == [("unload", "llama-1m-fp32", False)]


@pytest.mark.parametrize("keys", [("enter",), ("escape",), ("n",), ("q",), ("ctrl+c",)])
async def test_unload_of_a_busy_model_is_cancelled_by_default(keys: tuple[str, ...]) -> None:
    """Enter alone, Escape, n, q and Ctrl+C all leave a busy model where it is."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press("u")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press(*keys)
        assert app.screen is app.main_screen
        assert app.fake.calls == []


@pytest.mark.parametrize("keys", [("y",), ("right", "enter"), ("tab", "enter")])
async def test_unload_of_a_busy_model_is_forced_when_confirmed(keys: tuple[str, ...]) -> None:
    """A yes forces it, and the target is the model for which the dialog opened."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press("u")
        other = fakes.frame(fakes.busy("other", rank=0))
        await show(app, pilot, other)
        await pilot.press(*keys)
        await app.workers.wait_for_complete()
        assert app.fake.calls == [("unload", "qwen3-1m-8bit", True)]


async def test_pin_and_unpin() -> None:
    """``p`` turns the pin of the model at the cursor."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press("p", "j", "p")
        await app.workers.wait_for_complete()
        assert app.fake.calls == [("pin", "qwen3-1m-8bit", True), ("pin", "llama-1m-fp32", False)]


async def test_demo_on_and_off() -> None:
    """``d`` starts the demo, and stops it when it runs."""
    picture = fakes.loaded()
    async with running(replace(picture, is_demo_running=False)) as (app, pilot):
        await pilot.press("d")
        await show(app, pilot, picture)
        await pilot.press("d")
        await app.workers.wait_for_complete()
        assert app.fake.calls == [("demo", True), ("demo", False)]


async def test_the_folders_are_scanned_on_demand() -> None:
    """``s`` has the host look into its folders again."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press("s")
        await app.workers.wait_for_complete()
        assert app.fake.calls == [("rescan",)]


async def test_an_error_is_one_line_on_the_screen() -> None:
    """What a command raises is shown, marked as a problem, and nothing crashes."""
    async with running(fakes.loaded()) as (app, pilot):
        app.fake.error = RuntimeError("no room:\n8.1 MB needed [/red]")
        await pilot.press("j", "u")
        await app.workers.wait_for_complete()
        await pilot.pause()
        expected = "! could not unload llama-1m-fp32: no room: 8.1 MB needed [/red]"
        assert app.messages() == [expected]
        assert "! could not unload" in app.text()


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quit_without_requests_is_immediate(key: str) -> None:
    """With nobody to lose an answer, quitting does not ask."""
    async with running(fakes.error()) as (app, pilot):
        await pilot.press(key)
        assert not app.is_running or app._exit


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quit_with_requests_asks_and_stays_by_default(key: str) -> None:
    """Live requests make quitting a question, and Enter alone means no."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press(key)
        assert isinstance(app.screen, ConfirmScreen)
        assert "3 requests" in app.text()
        await pilot.press("enter")
        assert app.screen is app.main_screen
        assert not app._exit
        await pilot.press(key, "y")
        assert app._exit


async def test_quit_is_asked_once() -> None:
    """Ctrl+Q on top of the question does not open a second one."""
    async with running(fakes.loaded()) as (app, pilot):
        await pilot.press("q", "ctrl+q")
        assert len(app.screen_stack) == 2


async def test_quit_need_not_ask() -> None:
    """A console whose host goes on without it quits at once."""
    async with running(fakes.loaded(), confirm_quit_with_requests=False) as (app, pilot):
        await pilot.press("q")
        assert app._exit


async def test_number_keys_focus_panels() -> None:
    """1 to 4 move the keyboard to the panel with that number."""
    async with running(fakes.loaded()) as (app, pilot):
        for number in "23412":
            await pilot.press(number)
            assert app.focused is not None
            panel = app.main_screen.panels[int(number) - 1]
            assert app.focused is panel.keyboard_target


async def test_without_a_frame_keys_do_nothing() -> None:
    """Before the first frame the console says so, and no command is sent."""
    async with running(None) as (app, pilot):
        assert "starting…" in app.text()
        await pilot.press("l", "u", "p", "d", "enter", "j")
        assert app.fake.calls == []


async def test_help_lists_every_key() -> None:
    """Every key bound on the app, the screen and the panels is in the help, and every sign."""
    async with running(fakes.loaded(), (100, 120)) as (app, pilot):
        nodes = [app, app.main_screen, *(p.keyboard_target for p in app.main_screen.panels)]
        keys = {
            app.get_key_display(binding.with_key(key))
            for node in nodes
            for key, binding in node._bindings
        }
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        words = set(app.text().split())
        assert keys <= words
        assert {"next", "draining", "unservable", "prefill"} <= words
        await pilot.press("escape")
        assert app.screen is app.main_screen


async def test_help_scrolls_by_the_usual_keys() -> None:
    """On a small terminal the end of the help can be reached."""
    async with running(fakes.loaded(), (80, 24)) as (app, pilot):
        await pilot.press("question_mark", "end")
        await pilot.pause()
        assert "estimated from the files" in app.text()


async def test_theme_key_goes_round() -> None:
    """``t`` goes through the shipped themes and back to the first."""
    async with running(fakes.loaded()) as (app, pilot):
        assert app.theme == "omlx-dark"
        await pilot.press("t")
        assert app.theme == "omlx-light"
        await pilot.press("t")
        assert app.theme == "omlx-dark"


async def test_footer_follows_the_state() -> None:
    """What can't be done with the model at the cursor is greyed out, and comes back."""
    async with running(fakes.loaded()) as (app, pilot):
        hints = app.screen.active_bindings
        assert not hints["l"].enabled
        assert hints["u"].enabled
        await pilot.press("j", "j", "j")
        assert cursor(app) == "mixtral-1m-4bit"
        hints = app.screen.active_bindings
        assert hints["l"].enabled
        assert not hints["u"].enabled
