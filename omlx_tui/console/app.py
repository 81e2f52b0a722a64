"""The console: pulls frames, hands them to the panels, and sends the operator's commands.

It runs on a loop of its own, apart from the host's. It pulls the latest frame on its own clock and
never waits for the host, nor the host for it; commands run as workers, and what they raise becomes
one line on the screen.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar, Literal

from textual.app import App
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from omlx_tui.console.safe_text import safe_str
from omlx_tui.console.screens.confirm import ConfirmScreen
from omlx_tui.console.screens.help import HelpScreen, live_keys, panel_sections
from omlx_tui.console.screens.main import MainScreen
from omlx_tui.console.source import Frame, Source
from omlx_tui.console.themes import DEFAULT_THEME, ThemeLibrary, load_themes
from omlx_tui.console.vocabulary import PROBLEM
from omlx_tui.pool.snapshot import ModelSnapshot, ModelState


class ConsoleApp(App[None]):
    """The operator's console over a :class:`Source`.

    Args:
        theme: the name of a theme to start with; the default one if None or unknown.
        refresh_s: how often a new frame is looked for.
        confirm_quit_with_requests: ask before quitting while requests are live. A console that is
            only attached to a host has no need to: its host goes on.
        themes: the themes to choose from; the shipped ones if None.
    """

    TITLE = "omlx-tui"
    CSS_PATH = Path(__file__).with_name("app.tcss")
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "load", "Load", tooltip="Load the model at the cursor"),
        Binding("u", "unload", "Unload", tooltip="Unload the model at the cursor"),
        Binding("p", "pin", "Pin", tooltip="Pin it, or unpin it: a pinned model stays"),
        Binding("d", "demo", "Demo", tooltip="Start or stop a load of made-up requests"),
        Binding("s", "rescan", "Scan", show=False, tooltip="Look into the model folders again"),
        Binding("t", "next_theme", "Theme", tooltip="Switch to the next theme"),
        Binding("question_mark", "help", "Help", key_display="?", tooltip="This page"),
        Binding("q", "quit", "Quit", tooltip="Quit; asks first while requests are live"),
        Binding("ctrl+c", "quit", "Quit", show=False),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        source: Source,
        *,
        theme: str | None = None,
        refresh_s: float = 0.5,
        confirm_quit_with_requests: bool = True,
        themes: ThemeLibrary | None = None,
    ) -> None:
        super().__init__()
        # Every frame of an animation is bytes on somebody's SSH link.
        self.animation_level = "none"
        self._source = source
        self._refresh_s = refresh_s
        self._confirm_quit_with_requests = confirm_quit_with_requests
        self._library = load_themes() if themes is None else themes
        self._wanted_theme = theme
        self._frame: Frame | None = None
        self._hints: tuple[bool, ...] = ()
        self.main_screen = MainScreen()
        for each in self._library.themes:
            self.register_theme(each)
        self.theme = self._first_theme()

    def get_default_screen(self) -> MainScreen:
        return self.main_screen

    def on_mount(self) -> None:
        for fault in self._library.faults:
            self._say(fault.describe(), severity="warning")
        if self._wanted_theme not in (None, self.theme):
            known = ", ".join(self._theme_names)
            self._say(f"no theme {self._wanted_theme!r}; there are {known}", severity="warning")
        self.set_interval(self._refresh_s, self.refresh_frame)
        self.call_after_refresh(self.refresh_frame)

    def refresh_frame(self) -> None:
        """Draw the source's latest frame, if it is another one than the last time."""
        frame = self._source.frame()
        if frame is self._frame:
            return
        self._frame = frame
        self.main_screen.show(frame)
        self._refresh_hints()

    def on_data_table_row_highlighted(self, _: DataTable.RowHighlighted) -> None:
        self._refresh_hints()

    # What can be done now

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Grey out, in footer and keys, what makes no sense for the model at the cursor."""
        model = self._target()
        match action:
            case "load":
                return _can_load(model) or None
            case "unload":
                return _can_unload(model) or None
            case "pin":
                return model is not None or None
            case "demo":
                return self._frame is not None or None
            case _:
                return True

    def _refresh_hints(self) -> None:
        """Redraw the key hints only when one of them changes."""
        model = self._target()
        hints = (
            _can_load(model),
            _can_unload(model),
            model is not None,
            self._frame is not None,
        )
        if hints != self._hints:
            self._hints = hints
            self.main_screen.refresh_bindings()

    def _target(self) -> ModelSnapshot | None:
        return self.main_screen.models.cursor_model

    # Commands

    def action_load(self) -> None:
        if model := self._target():
            self._send(self._source.load(model.model_id), f"load {model.model_id}")

    def action_unload(self) -> None:
        model = self._target()
        if model is None:
            return
        # The dialog's target is this one, wherever the cursor is when it is answered.
        model_id = model.model_id
        if not model.is_busy:
            self._send(self._source.unload(model_id, force=False), f"unload {model_id}")
            return

        def on_answer(is_yes: bool | None) -> None:
            if is_yes:
                self._send(self._source.unload(model_id, force=True), f"unload {model_id}")

        count = model.active_requests + model.queued_requests
        detail = f"It is in use: {_requests(count)} will be aborted." if count else "It is in use."
        question = f"Unload {safe_str(model_id, 80)}?"
        self.push_screen(ConfirmScreen(question, detail, "Unload"), on_answer)

    def action_pin(self) -> None:
        if model := self._target():
            is_pinned = not model.is_pinned
            command = self._source.set_pinned(model.model_id, is_pinned=is_pinned)
            self._send(command, f"{'pin' if is_pinned else 'unpin'} {model.model_id}")

    def action_rescan(self) -> None:
        self._send(self._source.rescan(), "scan the folders")

    def action_demo(self) -> None:
        if self._frame is not None:
            is_running = not self._frame.is_demo_running
            command = self._source.set_demo(is_running=is_running)
            self._send(command, f"{'start' if is_running else 'stop'} the demo")

    async def action_quit(self) -> None:
        requests = () if self._frame is None else self._frame.snapshot.requests
        if not (requests and self._confirm_quit_with_requests):
            self.exit()
            return
        if isinstance(self.screen, ConfirmScreen):
            return

        def on_answer(is_yes: bool | None) -> None:
            if is_yes:
                self.exit()

        detail = f"The host stops too: {_requests(len(requests))} will be aborted."
        self.push_screen(ConfirmScreen("Quit omlx-tui?", detail, "Quit"), on_answer)

    def action_help(self) -> None:
        sections = {
            "Everywhere": live_keys(self),
            "Between panels": live_keys(self.main_screen),
            **panel_sections(self.main_screen.panels),
        }
        self.push_screen(HelpScreen(sections))

    def action_next_theme(self) -> None:
        names = self._theme_names
        if names:
            index = names.index(self.theme) + 1 if self.theme in names else 0
            self.theme = names[index % len(names)]

    # Helpers

    @property
    def _theme_names(self) -> list[str]:
        return [theme.name for theme in self._library.themes]

    def _first_theme(self) -> str:
        for name in (self._wanted_theme, DEFAULT_THEME, *self._theme_names):
            if name is not None and name in self.available_themes:
                return name
        return self.theme

    def _send(self, command: Coroutine[Any, Any, object], doing: str) -> None:
        """Run a command of the source on the side; nothing here waits for it."""
        self.run_worker(self._run(command, doing), group="commands", exit_on_error=False)

    async def _run(self, command: Coroutine[Any, Any, object], doing: str) -> None:
        try:
            await command
        except Exception as error:  # noqa: BLE001  whatever went wrong, the operator reads one line
            reason = str(error) or type(error).__name__
            self._say(f"could not {doing}: {reason}", severity="error")

    def _say(self, message: str, *, severity: Literal["information", "warning", "error"]) -> None:
        """One line for the operator, safe to show whatever it holds."""
        self.notify(
            f"{PROBLEM.glyph} {safe_str(message)}", severity=severity, timeout=10, markup=False
        )


def _can_load(model: ModelSnapshot | None) -> bool:
    return (
        model is not None
        and model.is_servable
        and model.state in (ModelState.UNLOADED, ModelState.FAILED)
    )


def _can_unload(model: ModelSnapshot | None) -> bool:
    return model is not None and model.state in (ModelState.READY, ModelState.DRAINING)


def _requests(count: int) -> str:
    return f"{count} request" if count == 1 else f"{count} requests"
