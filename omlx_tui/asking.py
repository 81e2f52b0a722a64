"""``omlx-tui prompt``: an answer on standard output, everything else on standard error."""

from __future__ import annotations

import shutil
import sys
from contextlib import aclosing

from omlx_tui.client import Delta, Done, InLine, Loading, PromptError, stream_prompt


async def print_answer(
    url: str,
    text: str,
    *,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
) -> int:
    """Stream the answer to one prompt; returns the exit code."""
    notes = _Notes()
    answer = stream_prompt(
        url,
        text,
        model=model,
        max_output_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        client_name="omlx-prompt",
    )
    try:
        async with aclosing(answer) as events:
            async for event in events:
                match event:
                    case InLine(position, reason):
                        notes.progress(f"waiting, number {position} in line: {_printable(reason)}")
                    case Loading(done, total):
                        notes.progress(f"loading the model: {done * 100 // max(total, 1)} %")
                    case Delta(piece):
                        notes.clear()
                        sys.stdout.write(_printable(piece))
                        sys.stdout.flush()
                    case Done():
                        notes.clear()
                        sys.stdout.write("\n")
                        if event.status == "incomplete":
                            notes.say("(cut off at the token limit)")
                        elif event.status == "cancelled":
                            notes.say("omlx-tui: the host cancelled the answer")
                            return 1
    except PromptError as error:
        notes.clear()
        notes.say(f"omlx-tui: {_printable(error.message)}")
        return 1
    finally:
        notes.clear()
    return 0


def _printable(text: str) -> str:
    """Without the control characters with which a model could steer somebody's terminal."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


class _Notes:
    """Lines for the person, on stderr; progress only where it can be wiped away again."""

    def __init__(self) -> None:
        self._has_progress = False

    def progress(self, text: str) -> None:
        if sys.stderr.isatty():
            columns = shutil.get_terminal_size().columns  # what wraps can't be wiped away
            sys.stderr.write(f"\r\x1b[K{text[: columns - 1]}")
            sys.stderr.flush()
            self._has_progress = True

    def clear(self) -> None:
        if self._has_progress:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._has_progress = False

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)  # noqa: T201
