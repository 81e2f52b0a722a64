"""The log: one line per event, and never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import structlog

from omlx_tui.logs import configure_logging


def test_events_and_library_warnings_go_to_the_file(tmp_path: Path) -> None:
    """One line each, with control characters escaped so that a log can be read in a terminal."""
    path = tmp_path / "new" / "omlx.log"
    stream = configure_logging(path)
    structlog.get_logger("x").info("load", what="evil \x1b[2J\nname")
    stream.flush()
    (line,) = path.read_text().splitlines()
    assert "event=load" in line
    assert "\x1b" not in line
    stream.close()


def test_a_log_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    """The disk is full, the file was closed: the line is lost, nothing is raised."""
    stream = configure_logging(tmp_path / "omlx.log")
    stream.close()
    structlog.get_logger("x").info("load")
