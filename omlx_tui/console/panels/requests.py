"""The live requests: who asks which model, and how far along the answer is."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widget import Widget

from omlx_tui.console.format import format_age, format_count, format_rate
from omlx_tui.console.lines import Span
from omlx_tui.console.panel import Note, Panel
from omlx_tui.console.safe_text import safe_str
from omlx_tui.console.source import Frame
from omlx_tui.console.table import Column, KeyedTable, Row
from omlx_tui.console.vocabulary import REQUEST_SIGNS, Tone
from omlx_tui.pool.snapshot import RequestSnapshot, RequestState

COLUMNS = (
    Column(key="state", title="state", width=9),
    Column(key="model", title="model", width=9, wish=16, wish_priority=1, max_width=30),
    Column(
        key="client",
        title="client",
        width=13,
        wish=15,
        wish_priority=5,
        max_width=30,
        priority=4,
    ),
    Column(key="prompt", title="prompt", width=9, align="right", priority=6),
    Column(key="tokens", title="tok", width=5, align="right"),
    Column(key="rate", title="tok/s", width=5, align="right", priority=3),
    Column(key="age", title="age", width=3, align="right", priority=2),
)

NO_REQUESTS = 'No requests. From another terminal:\n\nomlx-tui prompt "Tell me a story about a fox"'


class RequestsPanel(Panel):
    NUMBER = 3
    TITLE = "requests"

    def __init__(self) -> None:
        super().__init__(id="requests")
        self._table = KeyedTable(COLUMNS, id="requests-table", show_cursor=False)
        self._note = Note()

    @property
    def keyboard_target(self) -> Widget:
        return self._table

    def compose(self) -> ComposeResult:
        yield self._table
        yield self._note

    def on_mount(self) -> None:
        self.add_class("-empty")

    def show(self, frame: Frame | None) -> None:
        if frame is None:
            return
        requests = frame.snapshot.requests
        if not requests:
            self._note.say(NO_REQUESTS)
        self.set_class(not requests, "-empty")
        self._table.set_rows(request_row(request, frame.snapshot.taken_s) for request in requests)
        self.set_title(Span(f"  {len(requests)} live" if requests else "", Tone.DIM))


def request_row(request: RequestSnapshot, now_s: float) -> Row:
    sign = REQUEST_SIGNS[request.state]
    return Row(
        key=request.request_id,
        cells={
            "state": Span(sign.label, sign.tone),
            "model": Span(safe_str(request.model_id, 80)),
            "client": Span(safe_str(request.client, 80), Tone.DIM),
            "prompt": Span(_prompt(request), Tone.DIM),
            "tokens": Span(format_count(request.generated_tokens)),
            "rate": Span(format_rate(request.tokens_per_s), Tone.INFO),
            "age": Span(format_age(now_s - request.started_s), Tone.DIM),
        },
    )


def _prompt(request: RequestSnapshot) -> str:
    """Prompt tokens, and how many of them have been read while that goes on."""
    if request.state is RequestState.PREFILL:
        return f"{request.prefilled_tokens}/{request.prompt_tokens}"
    return format_count(request.prompt_tokens)
