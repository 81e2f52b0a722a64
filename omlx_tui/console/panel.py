"""What all panels have in common: a numbered frame that is drawn from a :class:`Frame`."""

from __future__ import annotations

from typing import ClassVar

from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Static

from omlx_tui.console.lines import Line, Span, app_of, line_text
from omlx_tui.console.source import Frame
from omlx_tui.console.vocabulary import Tone


class Note(Static):
    """What a panel says while it has nothing to show."""

    def __init__(self) -> None:
        self._said = "starting…"
        super().__init__(self._said, markup=False)

    def say(self, text: str) -> None:
        """Say this; saying it again repaints nothing."""
        if text != self._said:
            self._said = text
            self.update(text)


class Panel(Vertical):
    """A framed area of the screen.

    A panel gets frames and renders what changed in them; it asks nobody anything. Its title and
    subtitle take text from outside (already through ``safe_str``): they are never parsed as markup,
    and setting one repaints one line of the border.
    """

    NUMBER: ClassVar[int]
    """The key that focuses it."""

    TITLE: ClassVar[str]

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._title_line: Line = ()
        self._subtitle_line: Line = ()

    def on_mount(self) -> None:
        if not self._title_line:  # a panel's own on_mount runs before this one
            self.set_title()
        app_of(self).theme_changed_signal.subscribe(self, self._restyle)

    def show(self, frame: Frame | None) -> None:
        """Draw this frame; None before the first one."""
        raise NotImplementedError

    @property
    def keyboard_target(self) -> Widget:
        """The widget in here that takes the keyboard."""
        raise NotImplementedError

    def set_title(self, *details: Span) -> None:
        line = (Span(f"{self.NUMBER} ", Tone.ACCENT), Span(self.TITLE), *details)
        if line != self._title_line:
            self._title_line = line
            self._border_title = self._content(line)
            self._refresh_border(0)

    def set_subtitle(self, *spans: Span) -> None:
        if spans != self._subtitle_line:
            self._subtitle_line = spans
            self._border_subtitle = self._content(spans) if spans else None
            self._refresh_border(self.outer_size.height - 1)

    def _content(self, line: Line) -> Content:
        return Content.from_rich_text(line_text(line, self))

    def _refresh_border(self, row: int) -> None:
        # Regions are relative to the content, which the border surrounds.
        offset = self.content_offset
        self.refresh(Region(0, row, self.outer_size.width, 1).translate(-offset))

    def _restyle(self, _: Theme) -> None:
        self._border_title = self._content(self._title_line)
        if self._subtitle_line:
            self._border_subtitle = self._content(self._subtitle_line)
        self.refresh()
