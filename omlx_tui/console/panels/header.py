"""The one line on top: who this is, where clients connect, and the totals."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from textual import events

from omlx_tui.console.format import format_rate, format_uptime
from omlx_tui.console.lines import Line, LinesView, Span, join_lines, line_cells
from omlx_tui.console.safe_text import safe_str
from omlx_tui.console.source import Frame
from omlx_tui.console.vocabulary import Tone
from omlx_tui.pool.snapshot import RequestState

_GAP = 2
_RUNNING = {RequestState.PREFILL, RequestState.DECODE}


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the header.

    ``variants`` are its ways to be written, longest first, each with its rank: the lower it is, the
    sooner it gives way to the next one, the last one to nothing.
    """

    variants: tuple[tuple[int, Line], ...]
    is_right: bool = False


class Header(LinesView):
    """Collapses from the least important piece as the terminal narrows."""

    DEFAULT_CSS = """
    Header {
        dock: top;
        height: 1;
        padding: 0 1;
        overflow-y: hidden;
        background: $panel;
        color: $foreground;
    }
    """

    def __init__(self) -> None:
        super().__init__(id="header", can_focus=False)
        self._parts: list[_Part] = _starting()

    def show(self, frame: Frame | None) -> None:
        self._parts = _starting() if frame is None else _parts(frame)
        self._lay_out(self.size.width)

    def on_resize(self, _: events.Resize) -> None:
        self._lay_out(self.size.width)

    def _lay_out(self, width: int) -> None:
        if width > 0:
            self.set_lines([_compose(self._parts, width)])


def _starting() -> list[_Part]:
    return [_name(), _Part(((99, (Span("starting…", Tone.DIM),)),))]


def _name() -> _Part:
    return _Part(((40, (Span("omlx-tui", Tone.STRONG),)), (95, (Span("omlx", Tone.STRONG),))))


def _parts(frame: Frame) -> list[_Part]:
    snapshot = frame.snapshot
    running = sum(request.state in _RUNNING for request in snapshot.requests)
    queued = len(snapshot.requests) - running
    endpoint = safe_str(frame.endpoint, 80)
    rate = format_rate(snapshot.tokens_per_s)
    models = f"{snapshot.resident_count}/{len(snapshot.models)}"
    host = safe_str(frame.host_name, 24)
    uptime = f"up {format_uptime(frame.uptime_s)}"
    parts = [
        _name(),
        _Part(((20, (Span(host, Tone.DIM),)),)),
        _Part(((30, (Span(endpoint, Tone.INFO),)), (60, (Span(_short(endpoint), Tone.INFO),)))),
        _Part(((10, (Span(uptime, Tone.DIM),)),)),
        _count((50, 97), models, "models", is_lively=snapshot.resident_count > 0),
        _count((80, 90), f"{running:>2}", "active", is_lively=running > 0),
        _count((70, 85), f"{queued:>2}", "queued", is_lively=queued > 0),
        _count((65, 75), f"{rate:>5}", "tok/s", is_lively=snapshot.tokens_per_s > 0),
    ]
    if frame.is_demo_running:
        demo = ((45, (Span("▶ demo", Tone.WARN),)), (98, (Span("▶", Tone.WARN),)))
        parts.append(_Part(demo, is_right=True))
    return parts


def _count(ranks: tuple[int, int], number: str, noun: str, *, is_lively: bool) -> _Part:
    """A number with its noun, and where there is no room, with the noun's beginning."""
    tone = Tone.STRONG if is_lively else Tone.DIM
    variants = [
        (rank, (Span(number, tone), Span(f" {word}", Tone.DIM)))
        for rank, word in zip(ranks, (noun, noun[:3]), strict=True)
    ]
    return _Part(tuple(variants), is_right=True)


def _short(endpoint: str) -> str:
    """Only host and port of ``ws://127.0.0.1:8765/v1/responses``."""
    try:
        return urlsplit(endpoint).netloc or endpoint
    except ValueError:
        return endpoint


def _compose(parts: list[_Part], width: int) -> Line:
    """Write the parts, those for the right pushed to the right, shortened until they fit."""
    left_over = parts
    while True:
        left = join_lines(part.variants[0][1] for part in left_over if not part.is_right)
        right = join_lines(part.variants[0][1] for part in left_over if part.is_right)
        spare = width - line_cells(left) - line_cells(right)
        if spare >= (_GAP if right else 0) or len(left_over) == 1:
            return (*left, Span(" " * max(0, spare)), *right)
        left_over = _give_way(left_over)


def _give_way(parts: list[_Part]) -> list[_Part]:
    """Shorten the part of the lowest rank, or drop it if it has no shorter form."""
    index = min(range(len(parts)), key=lambda i: parts[i].variants[0][0])
    part = parts[index]
    shorter = [_Part(part.variants[1:], part.is_right)] if len(part.variants) > 1 else []
    return [*parts[:index], *shorter, *parts[index + 1 :]]
