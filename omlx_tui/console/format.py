"""Numbers and times as the console writes them: short, of known width, and coarse.

Coarse on purpose: a cell is sent to the terminal only when its text changes, and a console nobody
needs should be silent.
"""

from __future__ import annotations

from typing import Literal

from rich.cells import cell_len, set_cell_size

from omlx_tui.console.safe_text import ELLIPSIS

Align = Literal["left", "right", "tail"]
"""``tail`` keeps the end of a text that is too long, as for paths."""

NOTHING = "·"
"""Stands where a number would be zero or has no meaning."""

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def fit(text: str, width: int, align: Align = "left") -> str:
    """Cut or pad to exactly ``width`` terminal cells; wide characters are never split."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length <= width:
        padding = " " * (width - length)
        return padding + text if align == "right" else text + padding
    if align == "tail":
        return ELLIPSIS + _last_cells(text, width - 1)
    return set_cell_size(text, width - 1) + ELLIPSIS


def _last_cells(text: str, width: int) -> str:
    start = len(text)
    used = 0
    while start > 0 and used + cell_len(text[start - 1]) <= width:
        start -= 1
        used += cell_len(text[start])
    return " " * (width - used) + text[start:]


def split_cells(text: str, widths: list[int]) -> list[str]:
    """Cut a text into consecutive pieces of exactly these widths, the last one with an ellipsis."""
    pieces: list[str] = []
    rest = text
    for index, width in enumerate(widths):
        if index == len(widths) - 1:
            pieces.append(fit(rest, width))
            break
        taken = 0
        used = 0
        while taken < len(rest) and used + cell_len(rest[taken]) <= width:
            used += cell_len(rest[taken])
            taken += 1
        pieces.append(rest[:taken] + " " * (width - used))
        rest = rest[taken:]
    return pieces


def format_idle(seconds: float | None) -> str:
    """How long ago, in at most four cells: ``now``, ``20s``, ``3m``, ``2h``, ``5d``.

    Under a minute in steps of ten seconds, so that idle models don't keep the terminal busy.
    """
    if seconds is None:
        return NOTHING
    if seconds < 10:
        return "now"
    if seconds < _MINUTE:
        return f"{int(seconds // 10) * 10}s"
    return _coarse(seconds)


def format_age(seconds: float) -> str:
    """How long something live has been going on: as :func:`format_idle`, but to the second."""
    if seconds < _MINUTE:
        return f"{max(0, int(seconds))}s"
    return _coarse(seconds)


def _coarse(seconds: float) -> str:
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)}m"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)}h"
    return f"{min(999, int(seconds // _DAY))}d"


def format_uptime(seconds: float) -> str:
    """``<1m``, ``12m``, ``2h 05m``, ``3d 04h``."""
    minutes = int(seconds // _MINUTE)
    if minutes < 1:
        return "<1m"
    if minutes < 60:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 24:
        return f"{hours}h {minutes % 60:02}m"
    return f"{hours // 24}d {hours % 24:02}h"


def format_rate(tokens_per_s: float) -> str:
    """Tokens per second in at most five cells."""
    if tokens_per_s <= 0:
        return NOTHING
    if tokens_per_s < 99.95:
        return f"{tokens_per_s:.1f}"
    if tokens_per_s < 10_000:
        return f"{tokens_per_s:.0f}"
    return f"{min(tokens_per_s / 1000, 9999):.0f}k"


def format_count(count: int) -> str:
    return NOTHING if count == 0 else str(count)


def format_percent(part: float, whole: float) -> str:
    """A share that says 100 % only when it is whole: ``99%`` of a load is not done."""
    if whole <= 0:
        return "0%"
    return f"{int(100 * max(0.0, part) / whole)}%"


_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def format_sum(first_bytes: int, second_bytes: int) -> str:
    """Two sizes in the unit of the larger, in at most twelve cells: ``1.9+0.5 MB``."""
    largest = max(first_bytes, second_bytes)
    for scale, unit in _UNITS:
        if largest >= scale:
            return (
                f"{_three_digits(first_bytes / scale)}+{_three_digits(second_bytes / scale)} {unit}"
            )
    return f"{first_bytes}+{second_bytes} B"


def _three_digits(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
