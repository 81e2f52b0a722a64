"""The help: the keys as they are bound now, and what the signs mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.screen import ModalScreen
from textual.widgets import Static

from omlx_tui.console.format import fit
from omlx_tui.console.lines import BLANK, Line, Span, app_of, line_text
from omlx_tui.console.panel import Panel
from omlx_tui.console.panels.memory import BAR_LEGEND
from omlx_tui.console.vocabulary import EVENT_SIGNS, MODEL_SIGNS, PROBLEM, REQUEST_SIGNS, Sign, Tone

_KEY_WIDTH = 16
_WORD_WIDTH = 16


KeyList = list[tuple[str, str]]


class HelpScreen(ModalScreen[None]):
    """Lists the keys it is given (see :func:`live_keys`), then the legend."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,ctrl+c", "dismiss", "Close"),
        Binding("j", "scroll('down')", "Down", show=False),
        Binding("k", "scroll('up')", "Up", show=False),
    ]

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        width: 76;
        max-width: 100%;
        height: auto;
        max-height: 100%;
        border: round $primary;
        border-title-color: $foreground;
        border-subtitle-color: $foreground-muted;
        background: $surface;
        padding: 0 2;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, sections: Mapping[str, KeyList]) -> None:
        super().__init__()
        self._sections = sections

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Help"
            box.border_subtitle = "Esc closes, ↑ ↓ scroll"
            lines = [*key_lines(self._sections), *legend_lines()]
            text = line_text(lines[0], self)
            for line in lines[1:]:
                text.append("\n")
                text.append_text(line_text(line, self))
            yield Static(text, markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_scroll(self, direction: str) -> None:
        box = self.query_one(VerticalScroll)
        if direction == "down":
            box.scroll_down(animate=False)
        else:
            box.scroll_up(animate=False)


def live_keys(node: DOMNode) -> KeyList:
    """The keys of a node as (keys, what they do); keys of one action stand together.

    Read from the node, not from a list of our own, so that a new binding or a user's keymap can't
    be missing here.
    """
    actions: dict[str, tuple[list[str], str]] = {}
    # Textual has no public way to list the keys of a widget that isn't focused.
    for key, binding in node._bindings:  # pyright: ignore[reportPrivateUsage]
        text = binding.tooltip or binding.description or binding.action
        keys, _ = actions.setdefault(binding.action, ([], text))
        keys.append(app_of(node).get_key_display(binding.with_key(key)))
    return [(" ".join(sorted(keys, key=len)), text) for keys, text in actions.values()]


def panel_sections(panels: Iterable[Panel]) -> dict[str, KeyList]:
    """The panels' keys: first those that all of them share, then each one's own."""
    lists = {panel.TITLE: live_keys(panel.keyboard_target) for panel in panels}
    shared = [
        entry
        for entry in next(iter(lists.values()))
        if all(entry in keys for keys in lists.values())
    ]
    own = {
        f"In {title}": [entry for entry in keys if entry not in shared]
        for title, keys in lists.items()
    }
    return {"In every panel": shared} | {title: keys for title, keys in own.items() if keys}


def key_lines(sections: Mapping[str, KeyList]) -> list[Line]:
    lines: list[Line] = []
    for heading, keys in sections.items():
        lines.extend(_heading(heading))
        lines.extend(
            (Span(f"  {fit(key, _KEY_WIDTH)}", Tone.ACCENT), Span(text)) for key, text in keys
        )
    return lines


def legend_lines() -> list[Line]:
    lines = [*_heading("Signs of models"), *map(_sign_line, MODEL_SIGNS)]
    lines += [*_heading("Signs of requests"), *map(_sign_line, REQUEST_SIGNS.values())]
    lines += [*_heading("Signs of events"), *map(_sign_line, (*EVENT_SIGNS.values(), PROBLEM))]
    lines += _heading("Memory bars (the whole bar is the budget)")
    lines += [
        (Span(f"  {fit(glyph, _WORD_WIDTH)}", Tone.ACCENT), Span(text))
        for glyph, text in BAR_LEGEND
    ]
    lines += [
        *_heading("Numbers"),
        (Span(f"  {fit('~', _WORD_WIDTH)}", Tone.ACCENT), Span("a size estimated from the files")),
        (Span(f"  {fit('·', _WORD_WIDTH)}", Tone.ACCENT), Span("none, or it has no meaning here")),
    ]
    return lines


def _heading(text: str) -> list[Line]:
    return [BLANK, (Span(text, Tone.STRONG),)]


def _sign_line(sign: Sign) -> Line:
    label = fit(sign.label, _WORD_WIDTH)
    return (Span(f"  {label}", sign.tone), Span(sign.meaning))
