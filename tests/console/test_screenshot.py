"""The picture for the README."""

from __future__ import annotations

from pathlib import Path

from omlx_tui.console.screenshot import save_screenshot

from . import fakes
from .fakes import FakeSource


async def test_a_frame_becomes_a_picture(tmp_path: Path) -> None:
    """The SVG holds what the console shows, without a terminal."""
    path = tmp_path / "console.svg"
    await save_screenshot(FakeSource(fakes.loaded()), path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "qwen3-1m-8bit" in text
