"""Ways to drive and to look at a console under test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rich.console import RenderableType
from textual._compositor import CompositorUpdate
from textual.pilot import Pilot
from textual.screen import Screen

from omlx_tui.console.app import ConsoleApp
from omlx_tui.console.source import Frame

from .fakes import FakeSource

NEVER_S = 3600.0
"""A refresh interval that doesn't come: tests call ``refresh_frame`` themselves."""


class Console(ConsoleApp):
    """A console that counts the bytes it would send to its terminal."""

    def __init__(self, source: FakeSource, **options: Any) -> None:
        super().__init__(source, refresh_s=NEVER_S, **options)
        self.fake = source
        self.written = 0

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if isinstance(renderable, CompositorUpdate):
            self.written += len(renderable.render_segments(self.console).encode())
        super()._display(screen, renderable)

    def text(self) -> str:
        """What is on the screen, without colours."""
        strips = self.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    def messages(self) -> list[str]:
        return [notification.message for notification in self._notifications]


@asynccontextmanager
async def running(
    picture: Frame | None, size: tuple[int, int] = (120, 40), **options: Any
) -> AsyncIterator[tuple[Console, Pilot[None]]]:
    """A console over a fake source, with its first frame drawn."""
    app = Console(FakeSource(picture), **options)
    async with app.run_test(size=size, notifications=True, tooltips=True) as pilot:
        await pilot.pause()
        app.refresh_frame()
        await pilot.pause()
        await pilot.pause()  # the key hints follow the first frame
        yield app, pilot


async def show(app: Console, pilot: Pilot[None], picture: Frame) -> None:
    """Let the host publish this frame and the console draw it."""
    app.fake.picture = picture
    app.refresh_frame()
    await pilot.pause()
