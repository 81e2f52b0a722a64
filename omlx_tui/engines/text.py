"""Text that may be shown: nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """Lets a text through, piece by piece, up to the first stop string.

    Text that may be the beginning of one is held back until it is known not to be. A stop string
    itself never comes through, nor anything after it.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        # Imported here, after the MLX thread has done it first: a thread that is the first to
        # import mlx-lm makes a random key that MLX counts as long as that thread lives.
        from mlx_lm.generate import TextStateMachine

        self._machine = TextStateMachine
        self._state = TextStateMachine(
            {"normal": [(text, None) for text in stop]} if stop else None
        ).make_state("normal")
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string has come by."""
        return self._is_stopped

    def feed(self, text: str) -> str:
        """Take a piece; returns what may be shown now, often nothing."""
        if self._is_stopped:
            return ""
        self._state, printable, state_name = self._machine.step(self._state, text)
        self._is_stopped = state_name is None
        return printable

    def flush(self) -> str:
        """No more is to come for now: what was held back is no stop string."""
        if self._is_stopped:
            return ""
        self._state, held_back, _ = self._machine.flush(self._state)
        return held_back
