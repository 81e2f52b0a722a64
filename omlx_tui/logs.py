"""The log: one line per event, for people on a terminal and in a file alike."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import structlog


def configure_logging(log_file: Path | None) -> TextIO:
    """Send structlog's and the libraries' lines to a file, or to stderr without one.

    Returns the stream. Raises ``OSError`` if the file can't be opened.
    """
    stream: TextIO = sys.stderr
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        stream = log_file.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
    safe_stream = cast("TextIO", _SafeStream(stream))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=safe_stream),
    )
    logging.basicConfig(
        stream=safe_stream,
        level=logging.WARNING,
        format='timestamp=%(asctime)s level=%(levelname)s event="%(message)s" logger=%(name)s',
        force=True,
    )
    return stream


_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(10), *range(11, 32), *range(127, 160))}


class _SafeStream:
    """Writes what comes from outside so that a log can be read in a terminal, and never fails.

    A full disk costs the log, not the service.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text.translate(_VISIBLE))

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()
