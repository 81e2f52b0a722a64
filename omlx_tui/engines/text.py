"""From token ids to text that may be shown: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """mlx-lm's streaming detokenizers, as far as they are used here."""

    @property
    def last_segment(self) -> str: ...

    def add_token(self, token: int) -> None: ...

    def finalize(self) -> None: ...


class TextAssembler:
    """Turns the tokens of one answer into printable pieces.

    A UTF-8 character is held back until all its bytes are there; text that may be the beginning
    of a stop string is held back until it is known not to be one. A stop string itself is never
    part of the text.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str]) -> None:
        # Imported here, after the MLX thread has done it first: a thread that is the first to
        # import mlx-lm makes a random key that MLX counts as long as that thread lives.
        from mlx_lm.generate import TextStateMachine

        self._detokenizer = detokenizer
        self._machine = TextStateMachine
        state_machine = TextStateMachine(
            {"normal": [(text, None) for text in stop]} if stop else None
        )
        self._state = state_machine.make_state("normal")
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string has come by; nothing more will be emitted."""
        return self._is_stopped

    def feed(self, token: int) -> str:
        """Take one token; returns the text that became printable, often empty."""
        self._detokenizer.add_token(token)
        return self._emit(self._detokenizer.last_segment)

    def finish(self) -> str:
        """The answer has ended: everything that was held back and isn't a stop string."""
        if self._is_stopped:
            return ""
        self._detokenizer.finalize()
        text = self._emit(self._detokenizer.last_segment)
        if self._is_stopped:
            return text
        self._state, held_back, _ = self._machine.flush(self._state)
        return text + held_back

    def _emit(self, text: str) -> str:
        if self._is_stopped:
            return ""
        self._state, printable, state_name = self._machine.step(self._state, text)
        self._is_stopped = state_name is None
        return printable
