"""A question before something that can't be taken back; the default answer is no."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static


class ConfirmScreen(ModalScreen[bool]):
    """Ends with True only if the operator says so; Enter on its own means Cancel.

    Args:
        question: one line; text from outside in it has gone through ``safe_str``.
        detail: what will happen.
        verb: what the button that does it says.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n,q,ctrl+c", "answer(False)", "Cancel"),
        Binding("y", "answer(True)", "Yes"),
        Binding("left,h,up,k", "app.focus_previous", "Previous", show=False),
        Binding("right,l,down,j", "app.focus_next", "Next", show=False),
    ]

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen > Vertical {
        width: 64;
        max-width: 100%;
        height: auto;
        max-height: 100%;
        overflow-y: auto;
        border: round $warning;
        background: $surface;
        padding: 1 2;
    }
    ConfirmScreen .question { text-style: bold; }
    ConfirmScreen .detail { color: $foreground-muted; margin-bottom: 1; }
    ConfirmScreen Horizontal { height: auto; align-horizontal: right; }
    ConfirmScreen Button { margin-left: 2; background: $panel; }
    ConfirmScreen Button:focus {
        background: $foreground;
        color: $surface;
        background-tint: $foreground 0%;
        text-style: bold !important;
    }
    """

    def __init__(self, question: str, detail: str, verb: str) -> None:
        super().__init__()
        self._question = question
        self._detail = detail
        self._verb = verb

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, classes="question", markup=False)
            yield Static(self._detail, classes="detail", markup=False)
            with Horizontal():
                yield Button(Content("[n] Cancel"), id="cancel", compact=True)
                yield Button(Content(f"[y] {self._verb}"), id="confirm", compact=True)

    def on_mount(self) -> None:
        self.query_one("#cancel", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "confirm")

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)
