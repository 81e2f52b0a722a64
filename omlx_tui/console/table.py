"""A table that repaints single cells, keeps its cursor on its row, and has fixed column widths.

Textual's ``DataTable`` repaints itself whole for every ``update_cell``: 32 KB on the wire at 120x40
for one number. :class:`KeyedTable` writes the value and marks only the cells whose text changed at
their place on the screen, which is what keeps a busy console calm over SSH.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.theme import Theme
from textual.widgets import DataTable
from textual.widgets.data_table import ColumnKey, RowKey

from omlx_tui.console.format import Align, fit, split_cells
from omlx_tui.console.lines import Span, app_of, line_text

_GAP = 1
"""Blank cells after a column; they belong to it, so a cursor bar has no holes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        width: its width, for a flexible column the least one.
        max_width: above ``width`` for a flexible column: it takes what is left over.
        priority: 0 is always shown; the others come in this order as the table widens.
        wish: the width a flexible column gets before columns above ``wish_priority`` come in.
    """

    key: str
    title: str
    width: int
    align: Align = "left"
    max_width: int = 0
    priority: int = 0
    wish: int = 0
    wish_priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row.

    Attributes:
        cells: by column key; columns without a cell stay blank.
        spread: text written over all columns from the one named to the last, as if they were one.
    """

    key: str
    cells: Mapping[str, Span] = field(default_factory=dict[str, Span])
    spread: tuple[str, Span] | None = None


def fit_columns(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """Choose the columns that fit into ``width`` and give each its width."""
    steps = [(column.priority, column.width + _GAP, column) for column in columns]
    steps += [(c.wish_priority, c.wish - c.width, c) for c in columns if c.wish]
    widths: dict[str, int] = {}
    left_over = width
    for priority, needed, column in sorted(steps, key=lambda step: step[0]):
        if priority > 0 and needed > left_over:
            break
        left_over -= needed
        widths[column.key] = widths.get(column.key, -_GAP) + needed
    fitted: list[tuple[Column, int]] = []
    for column in columns:
        if column.key in widths:
            extra = max(0, min(left_over, column.max_width - widths[column.key]))
            left_over -= extra
            fitted.append((column, widths[column.key] + extra))
    return fitted


class KeyedTable(DataTable[Text], inherit_bindings=False):
    """Rows by key, in the order given; only what changed on the screen is repainted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor_up", "Up", show=False),
        Binding("down,j", "cursor_down", "Down", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown", "page_down", "Page down", show=False),
        Binding("home,g", "scroll_top", "Top", show=False),
        Binding("end,G", "scroll_bottom", "Bottom", show=False),
    ]

    DEFAULT_CSS = """
    KeyedTable {
        height: 1fr;
        padding-left: 1;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, columns: Sequence[Column], *, id: str, show_cursor: bool) -> None:  # noqa: A002
        super().__init__(id=id, cursor_type="row", cell_padding=0, show_cursor=show_cursor)
        self._all_columns = tuple(columns)
        self._fitted: list[tuple[Column, int]] = []
        self._wanted: dict[str, Row] = {}
        self._shown: list[tuple[str, tuple[Span, ...]]] = []

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor."""
        if 0 <= self.cursor_row < len(self._shown):
            return self._shown[self.cursor_row][0]
        return None

    @property
    def shown_keys(self) -> list[str]:
        return [key for key, _ in self._shown]

    def on_mount(self) -> None:
        app_of(self).theme_changed_signal.subscribe(self, self._restyle)

    def on_resize(self, _: events.Resize) -> None:
        # The scrollbar, when it comes, takes the last column's gap: no column moves.
        fitted = fit_columns(self._all_columns, self.size.width)
        if self.size.width and fitted != self._fitted:
            self._fitted = fitted
            self._rebuild()

    def set_rows(self, rows: Iterable[Row]) -> None:
        """Show these rows, in this order. Of rows with the same key the last one counts."""
        self._wanted = {row.key: row for row in rows}
        if self._fitted:
            self._apply()

    def _rebuild(self) -> None:
        """New columns: start over, with the cursor on the same row."""
        cursor_key = self.cursor_key
        self.clear(columns=True)
        self._shown = []
        for column, width in self._fitted:
            title = fit(column.title, width, column.align)
            self.add_column(Text(title, end=""), width=width + _GAP, key=column.key)
        self._apply(cursor_key)

    def _restyle(self, _: Theme) -> None:
        """Colours changed: make every cell anew."""
        for key, spans in self._shown:
            self._store(key, spans)
        self._update_count += 1
        self.refresh()

    def _apply(self, cursor_key: str | None = None) -> None:
        cursor_key = cursor_key or self.cursor_key
        old = self._shown
        new = [(key, self._lay_out(row)) for key, row in self._wanted.items()]
        if old == new:
            return
        self._add_and_remove({key for key, _ in old}, dict(new))
        old_spans = dict(old)
        for key, spans in new:
            if old_spans.get(key, spans) != spans:
                self._store(key, spans)
        self._shown = new
        locations = type(self._row_locations)
        self._row_locations = locations({RowKey(key): i for i, (key, _) in enumerate(new)})
        # Forget what was rendered, but mark only the cells that look different now.
        self._update_count += 1
        self._follow(cursor_key)
        self._refresh_changes(old, new)

    def _add_and_remove(self, old_keys: set[str], new: Mapping[str, tuple[Span, ...]]) -> None:
        for key in old_keys - new.keys():
            self.remove_row(key)
        for key, spans in new.items():
            if key not in old_keys:
                self.add_row(*map(self._text, spans), key=key)

    def _follow(self, cursor_key: str | None) -> None:
        """Keep the cursor on its row; where that row has gone, keep its place."""
        if cursor_key in self._wanted:
            index = list(self._wanted).index(cursor_key)
            if index != self.cursor_row:
                self.move_cursor(row=index)

    def _refresh_changes(
        self,
        old: list[tuple[str, tuple[Span, ...]]],
        new: list[tuple[str, tuple[Span, ...]]],
    ) -> None:
        for row, (_, spans) in enumerate(new):
            before = old[row][1] if row < len(old) else ()
            for column, span in enumerate(spans):
                if column >= len(before) or before[column] != span:
                    self.refresh_coordinate(Coordinate(row, column))

    def _lay_out(self, row: Row) -> tuple[Span, ...]:
        """The row's cells as they are drawn: each exactly as wide as its column and gap."""
        spans = [self._cell(row, column, width) for column, width in self._fitted]
        if row.spread is None:
            return tuple(spans)
        first_key, text = row.spread
        keys = [column.key for column, _ in self._fitted]
        if first_key not in keys:
            return tuple(spans)
        first = keys.index(first_key)
        pieces = split_cells(text.text, [width + _GAP for _, width in self._fitted[first:]])
        return (*spans[:first], *(Span(piece, text.tone) for piece in pieces))

    def _cell(self, row: Row, column: Column, width: int) -> Span:
        span = row.cells.get(column.key, Span(""))
        return Span(fit(span.text, width, column.align) + " " * _GAP, span.tone)

    def _store(self, key: str, spans: tuple[Span, ...]) -> None:
        cells = self._data[RowKey(key)]
        for (column, _), span in zip(self._fitted, spans, strict=True):
            cells[ColumnKey(column.key)] = self._text(span)

    def _text(self, span: Span) -> Text:
        return line_text((span,), self)
