"""A picture of the console, drawn without a terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path

from omlx_tui.console.app import ConsoleApp
from omlx_tui.console.source import Source


async def save_screenshot(
    source: Source, path: Path, size: tuple[int, int] = (120, 40), *, theme: str | None = None
) -> None:
    """Draw the source's present frame at ``size`` (columns, rows) and save it as an SVG."""
    app = ConsoleApp(source, theme=theme)
    async with app.run_test(size=size) as pilot:
        app.refresh_frame()
        await pilot.pause()
        svg = app.export_screenshot(title="omlx-tui", simplify=True)
    await asyncio.to_thread(path.write_text, svg, encoding="utf-8")
