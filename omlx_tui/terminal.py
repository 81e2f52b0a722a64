"""Keeps the terminal the console's own while it draws."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def reserved_for_console(log_stream: TextIO) -> Generator[None]:
    """Point file descriptors 1 and 2 at the log, and give Textual a private way to the terminal.

    Native code (Metal, CUDA, a compiler that MLX starts) writes to these descriptors as it likes
    and would paint over the screen. Textual draws on ``sys.__stderr__`` and asks
    ``sys.__stdout__`` for the size, so both become a duplicate of the terminal.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {1: os.dup(1), 2: os.dup(2)}
    saved_streams = sys.__stdout__, sys.__stderr__
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace") as terminal:
        try:
            sys.__stdout__ = sys.__stderr__ = terminal  # type: ignore[misc]
            for descriptor in saved:
                os.dup2(log_stream.fileno(), descriptor)
            yield
        finally:
            for descriptor, original in saved.items():
                os.dup2(original, descriptor)
                os.close(original)
            sys.__stdout__, sys.__stderr__ = saved_streams  # type: ignore[misc]
