"""The event log: what the pool did, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from omlx_tui.console.format import fit
from omlx_tui.console.lines import Line, LinesView, Span
from omlx_tui.console.panel import Panel
from omlx_tui.console.safe_text import safe_str
from omlx_tui.console.source import Frame
from omlx_tui.console.vocabulary import Tone, event_sign
from omlx_tui.pool.events import PoolEvent

MAX_EVENTS = 500
"""Kept on the screen; the pool keeps more."""

_MAX_ROWS = 3
"""An event takes at most so many lines, however long its text is."""

_WIDE = 90
"""From this width on the kind is written beside the glyph."""


class EventsView(LinesView):
    """Follows the tail only while it is at the end, and never pulls a reader away."""

    DEFAULT_CSS = """
    EventsView { padding: 0 0 0 1; }
    """

    class Moved(Message):
        """What is at the lower edge changed: the tail, or something older."""

    def __init__(self) -> None:
        super().__init__(id="events-lines")
        self._events: tuple[PoolEvent, ...] = ()
        self._wrapped: dict[int, list[Line]] = {}
        self._width = 0
        self._note = "starting…"
        self.is_following = True

    def show(self, kept: tuple[PoolEvent, ...]) -> None:
        """Show these events, the latest last."""
        first = kept[0].seq if kept else 0
        gone = [event.seq for event in self._events if event.seq < first]
        dropped = sum(len(self._wrapped.pop(seq, ())) for seq in gone)
        self._note = "No events yet."
        self._events = kept
        self._draw()
        if dropped and not self.is_following:
            self.scroll_to(y=max(0, self.scroll_offset.y - dropped), animate=False)

    def on_resize(self, _: events.Resize) -> None:
        width = self.size.width - 1  # the scrollbar's cell
        if width > 0 and width != self._width:
            self._width = width
            self._wrapped.clear()
            self._draw()
        self._follow()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        is_at_end = new_value >= self.max_scroll_y
        if is_at_end != self.is_following:
            self.is_following = is_at_end
            self.post_message(self.Moved())

    def _draw(self) -> None:
        if self._width <= 0:
            return
        if not self._events:
            self.set_lines([(Span(self._note, Tone.DIM),)])
            return
        self.set_lines([line for event in self._events for line in self._wrap(event)])
        self._follow()

    def _follow(self) -> None:
        if self.is_following and self.scroll_offset.y != self.max_scroll_y:
            # Forced: the scrollbar, by which Textual judges, may come only with the next layout.
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)

    def _wrap(self, event: PoolEvent) -> list[Line]:
        lines = self._wrapped.get(event.seq)
        if lines is None:
            lines = self._wrapped[event.seq] = event_lines(event, self._width)
        return lines


class EventsPanel(Panel):
    NUMBER = 4
    TITLE = "events"

    def __init__(self) -> None:
        super().__init__(id="events")
        self._view = EventsView()
        self._shown: tuple[int, int] | None = None

    @property
    def keyboard_target(self) -> Widget:
        return self._view

    def compose(self) -> ComposeResult:
        yield self._view

    def show(self, frame: Frame | None) -> None:
        if frame is None:
            return
        kept = frame.events[-MAX_EVENTS:]
        if (numbers := _first_and_last(kept)) != self._shown:
            self._shown = numbers
            self._view.show(kept)

    def on_events_view_moved(self, _: EventsView.Moved) -> None:
        if self._view.is_following:
            self.set_subtitle()
        else:
            self.set_subtitle(Span("↓ newer below, End follows", Tone.WARN))


def _first_and_last(kept: Sequence[PoolEvent]) -> tuple[int, int]:
    return (kept[0].seq, kept[-1].seq) if kept else (0, 0)


def event_lines(event: PoolEvent, width: int) -> list[Line]:
    """An event as one line, or a few with a hanging indent: the end of it matters too."""
    sign = event_sign(event)
    clock = time.strftime("%H:%M:%S", time.localtime(event.wall_s))
    label = f"{sign.glyph} {event.kind:<9} " if width >= _WIDE else f"{sign.glyph} "
    lead = (Span(f"{clock} ", Tone.DIM), Span(label, sign.tone))
    indent = len(clock) + 1 + len(label)
    tone = Tone.BAD if event.is_problem else Tone.TEXT
    rows = _wrap_text(safe_str(event.describe(), 600), max(8, width - indent))
    return [
        (*(lead if row == 0 else (Span(" " * indent),)), Span(text, tone))
        for row, text in enumerate(rows)
    ]


def _wrap_text(text: str, width: int) -> list[str]:
    """Wrap by terminal cells, to a bounded number of rows."""
    if text.isascii() and len(text) <= width:
        return [text]
    rows = [row.plain.rstrip() for row in Content(text).wrap(width)]
    if len(rows) > _MAX_ROWS:
        last = fit(f"{rows[_MAX_ROWS - 1]} {rows[_MAX_ROWS]}", width)
        rows = [*rows[: _MAX_ROWS - 1], last]
    return rows or [""]
