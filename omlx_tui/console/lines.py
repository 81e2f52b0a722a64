"""Lines of toned text, and a view of them that repaints only the lines that changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple, cast

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from omlx_tui.console.vocabulary import Tone, tone_styles


class Span(NamedTuple):
    """Some text in one tone. Compares by value, so a panel can tell what changed."""

    text: str
    tone: Tone = Tone.TEXT

    @property
    def cells(self) -> int:
        return Segment(self.text).cell_length


Line = tuple[Span, ...]
BLANK: Line = ()


def line_cells(line: Line) -> int:
    return sum(span.cells for span in line)


def join_lines(lines: Iterable[Line], gap: str = "  ") -> Line:
    """Put lines side by side on one, with a gap between them."""
    joined: list[Span] = []
    for line in lines:
        if joined:
            joined.append(Span(gap))
        joined.extend(line)
    return tuple(joined)


def app_of(node: DOMNode) -> App[object]:
    """The app a widget is in. Textual leaves its type half open; this closes it in one place."""
    return cast("App[object]", node.app)  # pyright: ignore[reportUnknownMemberType]


def line_text(line: Line, widget: DOMNode) -> Text:
    """A line as Rich text under the widget's theme, for where Textual's own widgets draw it."""
    styles = tone_styles(app_of(widget).theme_variables)
    return Text.assemble(*((span.text, styles[span.tone]) for span in line), end="")


class LinesView(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows lines, scrolls them by keys, and sends only changed lines to the terminal."""

    ALLOW_SELECT = False

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False),
        Binding("down,j", "scroll_down", "Down", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown", "page_down", "Page down", show=False),
        Binding("home,g", "scroll_home", "Top", show=False),
        Binding("end,G", "scroll_end", "Bottom", show=False),
    ]

    DEFAULT_CSS = """
    LinesView {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, *, id: str | None = None, can_focus: bool = True) -> None:  # noqa: A002
        super().__init__(id=id, can_focus=can_focus)
        self._lines: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        return self._lines

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Show these lines instead; where they equal the old ones nothing is repainted."""
        old, new = self._lines, tuple(lines)
        if old == new:
            return
        self._lines = new
        if len(old) != len(new):
            self.virtual_size = Size(self.size.width, len(new))
        top = self.scroll_offset.y
        for row in range(self.size.height):
            index = top + row
            if _at(old, index) != _at(new, index):
                self.refresh(Region(0, row, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        styles = tone_styles(app_of(self).theme_variables)
        base = self.rich_style
        line = _at(self._lines, y + self.scroll_offset.y)
        segments = [Segment(span.text, base + styles[span.tone]) for span in line]
        return _fill(segments, self.size.width, base)


def _at(lines: tuple[Line, ...], index: int) -> Line:
    return lines[index] if 0 <= index < len(lines) else BLANK


def _fill(segments: list[Segment], width: int, style: Style) -> Strip:
    return Strip(segments).adjust_cell_length(width, style).simplify()
