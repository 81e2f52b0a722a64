"""One visual language: which glyph, word and colour mean which state, everywhere.

A sign always has a glyph and a word; its colour (a *tone*) only repeats them, so the console reads
the same in monochrome. The help screen's legend is made from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from rich.style import Style
from textual.color import Color

from omlx_tui.pool import events
from omlx_tui.pool.snapshot import ModelSnapshot, ModelState, RequestState


class Tone(StrEnum):
    """What a colour says. A theme may set ``tone-<name>``; otherwise it follows its own colours."""

    TEXT = "text"
    DIM = "dim"
    STRONG = "strong"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    INFO = "info"
    ACCENT = "accent"


_THEME_COLOURS = {
    Tone.GOOD: "success",
    Tone.WARN: "warning",
    Tone.BAD: "error",
    Tone.INFO: "secondary",
    Tone.ACCENT: "accent",
}


@dataclass(frozen=True, slots=True)
class Sign:
    """A state as it is drawn, and what it means (for the legend)."""

    glyph: str
    word: str
    tone: Tone
    meaning: str

    @property
    def label(self) -> str:
        return f"{self.glyph} {self.word}"


READY = Sign("●", "ready", Tone.GOOD, "in memory, idle: may be evicted")
BUSY = Sign("▶", "busy", Tone.INFO, "in memory, in use: stays")
NEXT_OUT = Sign("▼", "next out", Tone.WARN, "in memory, least recently used: leaves first")
LOADING = Sign("◌", "loading", Tone.ACCENT, "weights are being read; its bytes are reserved")
DRAINING = Sign("◐", "draining", Tone.WARN, "finishes what runs, takes nothing new, then leaves")
UNLOADING = Sign("▽", "unloading", Tone.WARN, "leaving; its bytes come back in a moment")
ON_DISK = Sign("○", "on disk", Tone.DIM, "not in memory; loads when asked for")
FAILED = Sign("✗", "failed", Tone.BAD, "its load failed; the row says why")
UNSERVABLE = Sign("⊘", "unservable", Tone.BAD, "can't be served; the row says why")
PINNED = Sign("◆", "pinned", Tone.ACCENT, "never evicted")
PROBLEM = Sign("!", "problem", Tone.BAD, "something went wrong")

MODEL_SIGNS = (
    READY,
    BUSY,
    NEXT_OUT,
    LOADING,
    DRAINING,
    UNLOADING,
    ON_DISK,
    FAILED,
    UNSERVABLE,
    PINNED,
)

_STATE_SIGNS = {
    ModelState.UNLOADED: ON_DISK,
    ModelState.LOADING: LOADING,
    ModelState.READY: READY,
    ModelState.DRAINING: DRAINING,
    ModelState.UNLOADING: UNLOADING,
    ModelState.FAILED: FAILED,
}

REQUEST_SIGNS = {
    RequestState.WAITING: Sign("◦", "waiting", Tone.WARN, "no room yet: waits for memory"),
    RequestState.LOADING: Sign("◌", "loading", Tone.ACCENT, "its model is being loaded"),
    RequestState.QUEUED: Sign("⋮", "queued", Tone.DIM, "its model is in memory; waits its turn"),
    RequestState.PREFILL: Sign("▷", "prefill", Tone.INFO, "its prompt is being read"),
    RequestState.DECODE: Sign("▶", "decode", Tone.INFO, "tokens are coming"),
}

EVENT_SIGNS: dict[type[events.PoolEvent], Sign] = {
    events.ModelsDiscovered: Sign("○", "found", Tone.DIM, "models found"),
    events.LoadStarted: Sign("◌", "load", Tone.ACCENT, "load started"),
    events.ModelLoaded: Sign("●", "loaded", Tone.GOOD, "load finished"),
    events.LoadCancelled: Sign("○", "cancelled", Tone.DIM, "load cancelled"),
    events.ModelEvicted: Sign("▼", "evicted", Tone.WARN, "evicted for another model"),
    events.ModelUnloaded: Sign("▽", "unloaded", Tone.WARN, "unloaded by the operator"),
    events.VictimSpared: Sign("●", "spared", Tone.GOOD, "chosen to leave, used in time"),
    events.PinChanged: Sign("◆", "pin", Tone.ACCENT, "pinned or unpinned"),
    events.RequestStarted: Sign("▷", "request", Tone.INFO, "request came in"),
    events.RequestFinished: Sign("✓", "done", Tone.DIM, "request ended"),
}
_OTHER_EVENT = Sign("•", "event", Tone.DIM, "anything else")


def model_sign(model: ModelSnapshot) -> Sign:
    """The one sign for a model: what keeps it from service first, then what it does."""
    if model.state is ModelState.READY:
        if model.is_busy:
            return BUSY
        return NEXT_OUT if model.is_next_victim else READY
    if model.state is ModelState.UNLOADED and not model.is_servable:
        return UNSERVABLE
    return _STATE_SIGNS[model.state]


def event_sign(event: events.PoolEvent) -> Sign:
    """The sign for an event; every problem looks the same, whatever its kind."""
    if event.is_problem:
        return PROBLEM
    return EVENT_SIGNS.get(type(event), _OTHER_EVENT)


def tone_styles(theme_variables: Mapping[str, str]) -> Mapping[Tone, Style]:
    """How each tone is drawn under a theme, given its resolved variables."""
    foreground = theme_variables["foreground"]
    background = theme_variables["background"]
    colours = {
        tone: theme_variables.get(f"tone-{tone}", theme_variables[name])
        for tone, name in _THEME_COLOURS.items()
    }
    dim = theme_variables.get("tone-dim", "")
    return _build_styles(foreground, background, dim, tuple(sorted(colours.items())))


@lru_cache(maxsize=16)
def _build_styles(
    foreground: str, background: str, dim: str, colours: tuple[tuple[Tone, str], ...]
) -> Mapping[Tone, Style]:
    styles = {tone: Style(color=Color.parse(value).rich_color) for tone, value in colours}
    styles[Tone.TEXT] = Style()
    styles[Tone.STRONG] = Style(bold=True)
    styles[Tone.DIM] = Style(color=(_dimmed(foreground, background, dim)).rich_color)
    return styles


def _dimmed(foreground: str, background: str, dim: str) -> Color:
    if dim:
        return Color.parse(dim)
    text = Color.parse(foreground)
    if text.ansi is not None:  # the terminal's own palette can't be mixed
        return Color.parse("ansi_bright_black")
    return text.blend(Color.parse(background), 0.42)
