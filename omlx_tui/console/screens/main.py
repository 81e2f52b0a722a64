"""The console's one screen: header, panels, key hints, and how they share the room."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer, Static

from omlx_tui.console.panel import Panel
from omlx_tui.console.panels.events import EventsPanel
from omlx_tui.console.panels.header import Header
from omlx_tui.console.panels.memory import MemoryPanel
from omlx_tui.console.panels.models import ModelsPanel
from omlx_tui.console.panels.requests import RequestsPanel
from omlx_tui.console.source import Frame

MIN_WIDTH = 60
MIN_HEIGHT = 15

_COMPACT_BELOW_WIDTH = 76
_COMPACT_BELOW_HEIGHT = 20


class MainScreen(Screen[None], inherit_bindings=False):
    """Three layouts, chosen by size.

    Below 60x15 a line says which size is needed. Below 76x20 the models share the screen with one
    other panel, the one whose key was pressed last. Otherwise all four are shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "focus_panel(1)", "Models", show=False),
        Binding("2", "focus_panel(2)", "Memory", show=False),
        Binding("3", "focus_panel(3)", "Requests", show=False),
        Binding("4", "focus_panel(4)", "Events", show=False),
        Binding("tab", "app.focus_next", "Next panel", show=False),
        Binding("shift+tab", "app.focus_previous", "Previous panel", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.header = Header()
        self.models = ModelsPanel()
        self.memory = MemoryPanel()
        self.requests = RequestsPanel()
        self.events = EventsPanel()
        self.panels: tuple[Panel, ...] = (self.models, self.memory, self.requests, self.events)
        self._panel = self.models.NUMBER

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.models
        with Horizontal(id="middle"):
            yield self.memory
            yield self.requests
        yield self.events
        yield Footer(show_command_palette=False)
        yield Static("", id="too-small", markup=False)

    def on_mount(self) -> None:
        self._show_beside_models(self.events.NUMBER)
        self.focus_panel(self.models.NUMBER)

    def show(self, frame: Frame | None) -> None:
        self.header.show(frame)
        for panel in self.panels:
            panel.show(frame)

    def action_focus_panel(self, number: int) -> None:
        self.focus_panel(number)

    def focus_panel(self, number: int) -> None:
        """Move the keyboard to a panel, and bring that panel up if there isn't room for all."""
        self._panel = number
        if number != self.models.NUMBER:
            self._show_beside_models(number)
        self.panels[number - 1].keyboard_target.focus()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        is_too_small = width < MIN_WIDTH or height < MIN_HEIGHT
        self.set_class(is_too_small, "-too-small")
        has_no_room = width < _COMPACT_BELOW_WIDTH or height < _COMPACT_BELOW_HEIGHT
        self.set_class(has_no_room and not is_too_small, "-compact")
        if is_too_small:
            self.query_one("#too-small", Static).update(
                f"This terminal is {width}x{height}.\nomlx-tui needs {MIN_WIDTH}x{MIN_HEIGHT}."
            )
        elif self.focused is None:
            # Hidden panels lose the keyboard; give it back when there is room again.
            self.call_after_refresh(self.focus_panel, self._panel)

    def _show_beside_models(self, number: int) -> None:
        for panel in self.panels[1:]:
            self.set_class(number == panel.NUMBER, f"-show-{panel.NUMBER}")
