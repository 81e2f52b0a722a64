"""The memory panel: every model's weights and headroom against the one budget.

All bars have the same scale, the budget, so lengths can be compared with the eye.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.widget import Widget

from omlx_tui.console.format import fit, format_percent, format_sum
from omlx_tui.console.lines import BLANK, Line, LinesView, Span, join_lines, line_cells
from omlx_tui.console.panel import Panel
from omlx_tui.console.safe_text import safe_str
from omlx_tui.console.source import Frame
from omlx_tui.console.vocabulary import Tone, model_sign
from omlx_tui.pool.snapshot import ModelSnapshot, ModelState, PoolSnapshot
from omlx_tui.sizes import format_bytes

WEIGHTS = "█"
KV = "▓"
RESERVED = "░"
FREE = "·"
PEAK = "┆"

BAR_LEGEND = (
    (WEIGHTS, "weights in memory"),
    (KV, "KV cache in use"),
    (RESERVED, "reserved: headroom, or weights still to be loaded"),
    (FREE, "free"),
    (PEAK, "the most that was ever held"),
)

_SUM_WIDTH = 12
_MIN_BAR = 6
_MAX_NAME = 32


@dataclass(frozen=True, slots=True)
class Use:
    """How a share of the budget is used. ``reserved`` is held but not filled."""

    weights: int = 0
    kv: int = 0
    reserved: int = 0

    @property
    def used(self) -> int:
        return self.weights + self.kv

    @property
    def held(self) -> int:
        return self.weights + self.kv + self.reserved

    def __add__(self, other: Use) -> Use:
        return Use(self.weights + other.weights, self.kv + other.kv, self.reserved + other.reserved)


def model_use(model: ModelSnapshot) -> Use:
    """What a model does with the bytes it holds. The parts add up to ``held_bytes``."""
    if model.load is not None and model.state is ModelState.LOADING:
        weights = min(model.load.done_bytes, model.held_bytes)
    else:
        weights = min(model.weights_bytes, model.held_bytes)
    kv = min(model.kv_bytes, model.held_bytes - weights)
    return Use(weights, kv, model.held_bytes - weights - kv)


class MemoryView(LinesView):
    """The lines; laid out anew when the width changes."""

    DEFAULT_CSS = """
    MemoryView { padding: 0 1; scrollbar-size-vertical: 0; }
    """

    def __init__(self) -> None:
        super().__init__(id="memory-lines")
        self._snapshot: PoolSnapshot | None = None

    def on_resize(self, _: events.Resize) -> None:
        self._draw()

    def show(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        if width <= 0:
            return
        if self._snapshot is None:
            self.set_lines([(Span("starting…", Tone.DIM),)])
        else:
            self.set_lines(memory_lines(self._snapshot, width, height))


class MemoryPanel(Panel):
    NUMBER = 2
    TITLE = "memory"

    def __init__(self) -> None:
        super().__init__(id="memory")
        self._view = MemoryView()

    @property
    def keyboard_target(self) -> Widget:
        return self._view

    def compose(self) -> ComposeResult:
        yield self._view

    def show(self, frame: Frame | None) -> None:
        if frame is None:
            return
        snapshot = frame.snapshot
        budget = format_bytes(snapshot.budget_bytes)
        self.set_title(Span("  budget ", Tone.DIM), Span(budget))
        self.set_subtitle(
            Span("MLX active ", Tone.DIM),
            Span(format_bytes(snapshot.memory.active_bytes)),
            Span("  cache ", Tone.DIM),
            Span(format_bytes(snapshot.memory.cache_bytes)),
        )
        self._view.show(snapshot)


def memory_lines(snapshot: PoolSnapshot, width: int, height: int) -> list[Line]:
    """The whole panel: the total, its figures, then one line for each model that holds bytes."""
    holders = [model for model in snapshot.models if model.held_bytes]
    total = sum((model_use(model) for model in holders), Use())
    # The pool's own sum is the truth; what no model claims is shown as reserved.
    total = Use(total.weights, total.kv, max(0, snapshot.held_bytes - total.used))
    lines = [
        _total_bar(snapshot, total, width),
        *_figures(snapshot, total, width),
    ]
    if height > len(lines) + len(holders):
        lines.append(BLANK)
    if not holders:
        lines.append((Span("nothing loaded yet", Tone.DIM),))
    name_width = _name_width(snapshot, width)
    lines.extend(_model_line(model, snapshot.budget_bytes, name_width, width) for model in holders)
    return lines


def _total_bar(snapshot: PoolSnapshot, total: Use, width: int) -> Line:
    percent = f"{format_percent(snapshot.held_bytes, snapshot.budget_bytes):>5}"
    bar = usage_bar(
        total, snapshot.budget_bytes, width - len(percent), peak_bytes=snapshot.peak_held_bytes
    )
    return (*bar, Span(percent, Tone.STRONG))


def _figures(snapshot: PoolSnapshot, total: Use, width: int) -> list[Line]:
    """The numbers in as many columns as fit: four on one line, or two on two."""
    figures = [
        _figure("used", total.used),
        _figure("reserved", total.reserved),
        _figure("free", snapshot.free_bytes),
        _figure("peak", snapshot.peak_held_bytes),
    ]
    one_line = join_lines(figures, gap="   ")
    if line_cells(one_line) <= width:
        return [one_line]
    return [join_lines(figures[:2]), join_lines(figures[2:])]


def _figure(label: str, size_bytes: int) -> Line:
    return (Span(f"{label:<8} ", Tone.DIM), Span(f"{format_bytes(size_bytes):>8}"))


def _name_width(snapshot: PoolSnapshot, width: int) -> int:
    """From all models' names, not only those shown: bars must not move when one loads."""
    longest = max((cell_len(safe_str(model.model_id)) for model in snapshot.models), default=0)
    return max(1, min(longest, _MAX_NAME, width - _SUM_WIDTH - _MIN_BAR - 4))


def _model_line(model: ModelSnapshot, budget_bytes: int, name_width: int, width: int) -> Line:
    sign = model_sign(model)
    use = model_use(model)
    bar_width = width - name_width - _SUM_WIDTH - 4
    headroom = max(model.headroom_bytes, use.held - model.weights_bytes)
    figures = fit(format_sum(model.weights_bytes, headroom), _SUM_WIDTH, "right")
    return (
        Span(f"{sign.glyph} ", sign.tone),
        Span(f"{fit(safe_str(model.model_id), name_width)} "),
        *usage_bar(use, budget_bytes, bar_width),
        Span(f" {figures}"),
    )


def usage_bar(use: Use, scale_bytes: int, width: int, *, peak_bytes: int = 0) -> Line:
    """A bar of exactly ``width`` cells on a fixed scale.

    Ends are rounded, not lengths, so the parts of the bar always end where their sum does. What is
    not zero gets at least one cell.
    """
    if width <= 0 or scale_bytes <= 0:
        return BLANK
    spans: list[Span] = []
    drawn = 0
    end_bytes = 0
    parts = ((use.weights, WEIGHTS, Tone.GOOD), (use.kv, KV, Tone.INFO))
    for size, glyph, tone in (*parts, (use.reserved, RESERVED, Tone.ACCENT)):
        end_bytes += size
        end = min(width, round(width * end_bytes / scale_bytes))
        cells = min(width - drawn, max(end - drawn, 1 if size else 0))
        if cells > 0:
            spans.append(Span(glyph * cells, tone))
            drawn += cells
    spans.extend(_free_cells(drawn, width, round(width * peak_bytes / scale_bytes)))
    return tuple(spans)


def _free_cells(drawn: int, width: int, peak: int) -> list[Span]:
    """The rest of a bar, with a mark at the peak if that lies in it."""
    if not drawn < peak <= width:
        return [Span(FREE * (width - drawn), Tone.DIM)]
    return [
        Span(FREE * (peak - 1 - drawn), Tone.DIM),
        Span(PEAK, Tone.WARN),
        Span(FREE * (width - peak), Tone.DIM),
    ]
