"""The LRU queue: which models are in memory, in the order in which they would leave it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import DataTable

from omlx_tui.console.format import (
    NOTHING,
    format_count,
    format_idle,
    format_percent,
    format_rate,
)
from omlx_tui.console.lines import Span
from omlx_tui.console.panel import Note, Panel
from omlx_tui.console.safe_text import safe_str
from omlx_tui.console.source import Frame
from omlx_tui.console.table import Column, KeyedTable, Row
from omlx_tui.console.vocabulary import PINNED, Tone, model_sign
from omlx_tui.pool.snapshot import ModelSnapshot, ModelState
from omlx_tui.sizes import format_bytes

COLUMNS = (
    Column(key="state", title="state", width=13),
    Column(key="pin", title="pin", width=3),
    Column(key="model", title="model", width=14, wish=20, wish_priority=6, max_width=36),
    Column(key="size", title="size", width=9, align="right"),
    Column(key="headroom", title="headroom", width=8, align="right", priority=5),
    Column(key="active", title="act", width=3, align="right", priority=1),
    Column(key="queued", title="que", width=3, align="right", priority=3),
    Column(key="idle", title="idle", width=4, align="right", priority=2),
    Column(key="rate", title="tok/s", width=6, align="right", priority=4),
    Column(key="kv", title="kv used", width=8, align="right", priority=7),
    Column(key="held", title="held", width=8, align="right", priority=8),
    Column(key="type", title="type", width=10, priority=9),
    Column(key="path", title="path", width=24, max_width=80, align="tail", priority=10),
)

NO_MODELS = (
    "No models found.\n\n"
    "Start with  --models DIR  to name a folder of MLX models,\n"
    "one folder for each model with its config.json and *.safetensors."
)


class ModelsTable(KeyedTable):
    """The table of models; Enter on a row loads the model."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "app.load", "Load the model at the cursor", show=False),
    ]


class ModelsPanel(Panel):
    NUMBER = 1
    TITLE = "models"

    def __init__(self) -> None:
        super().__init__(id="models")
        self._table = ModelsTable(COLUMNS, id="models-table", show_cursor=True)
        self._note = Note()
        self._models: dict[str, ModelSnapshot] = {}

    @property
    def keyboard_target(self) -> Widget:
        return self._table

    def compose(self) -> ComposeResult:
        yield self._table
        yield self._note

    def on_mount(self) -> None:
        self.set_title(Span("  LRU order, most recent first", Tone.DIM))
        self.add_class("-empty")

    @property
    def cursor_model(self) -> ModelSnapshot | None:
        """The model under the cursor, as the latest frame has it."""
        key = self._table.cursor_key
        return None if key is None else self._models.get(key)

    def show(self, frame: Frame | None) -> None:
        if frame is None:
            return
        snapshot = frame.snapshot
        if not snapshot.models:
            self._note.say(NO_MODELS)
        self.set_class(not snapshot.models, "-empty")
        self._models = {model.model_id: model for model in snapshot.models}
        self._table.set_rows(model_row(model, snapshot.taken_s) for model in snapshot.models)
        self._show_detail()

    def on_data_table_row_highlighted(self, _: DataTable.RowHighlighted) -> None:
        self._show_detail()

    def _show_detail(self) -> None:
        """Under the table: the full name of the model at the cursor, and what is wrong with it."""
        model = self.cursor_model
        if model is None:
            self.set_subtitle()
            return
        sign = model_sign(model)
        problem = f": {safe_str(model.problem, 160)}" if model.problem else ""
        pinned = f"  {PINNED.label}" if model.is_pinned else ""
        self.set_subtitle(
            Span(f"{safe_str(model.model_id, 80)}  ", Tone.STRONG),
            Span(f"{sign.label}{problem}", sign.tone),
            Span(pinned, PINNED.tone),
        )


def model_row(model: ModelSnapshot, now_s: float) -> Row:
    """One model as a row; ``now_s`` is on the clock of its ``last_access_s``."""
    sign = model_sign(model)
    word = sign.label
    if model.load is not None:
        word = f"{word} {format_percent(model.load.done_bytes, model.load.total_bytes)}"
    is_here = model.is_resident or model.state is ModelState.LOADING
    name = Tone.TEXT if is_here else Tone.DIM
    cells = {
        "state": Span(word, sign.tone),
        "pin": Span(f" {PINNED.glyph}" if model.is_pinned else "", PINNED.tone),
        "model": Span(safe_str(model.model_id, 80), name),
        "size": Span(_size(model), name),
    }
    if model.problem and not is_here:
        return Row(
            key=model.model_id,
            cells=cells,
            spread=("headroom", Span(f" {safe_str(model.problem)}", sign.tone)),
        )
    return Row(key=model.model_id, cells=cells | _figures(model, now_s, name))


def _figures(model: ModelSnapshot, now_s: float, tone: Tone) -> dict[str, Span]:
    idle_s = None if model.last_access_s is None else max(0.0, now_s - model.last_access_s)
    busy = Tone.INFO if model.active_requests else Tone.DIM
    queued = Tone.WARN if model.queued_requests else Tone.DIM
    return {
        "headroom": Span(
            format_bytes(model.headroom_bytes) if model.headroom_bytes else NOTHING, tone
        ),
        "active": Span(format_count(model.active_requests), busy),
        "queued": Span(format_count(model.queued_requests), queued),
        "idle": Span(NOTHING if model.is_busy else format_idle(idle_s), tone),
        "rate": Span(format_rate(model.tokens_per_s), busy),
        "kv": Span(format_bytes(model.kv_bytes) if model.kv_bytes else NOTHING, tone),
        "held": Span(format_bytes(model.held_bytes) if model.held_bytes else NOTHING, tone),
        "type": Span(safe_str(model.model_type, 40), Tone.DIM),
        "path": Span(safe_str(model.path), Tone.DIM),
    }


def _size(model: ModelSnapshot) -> str:
    if not model.weights_bytes:
        return NOTHING
    estimated = "" if model.weights_measured else "~"
    return estimated + format_bytes(model.weights_bytes)
