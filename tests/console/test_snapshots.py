"""How the console looks, in each of its states, at two sizes.

After a change that is meant run ``pytest tests/console/test_snapshots.py --snapshot-update``, and
look at the pictures in ``__snapshots__`` before they are committed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from omlx_tui.console.source import Frame

from . import fakes
from .driving import Console
from .fakes import FakeSource

SIZES = [(80, 24), (120, 40)]
SCENES = {
    "empty": fakes.empty,
    "loaded": fakes.loaded,
    "loading": fakes.loading,
    "evicting": fakes.evicting,
    "error": fakes.error,
}
Compare = Callable[..., bool]


async def _draw(pilot: Pilot[None]) -> None:
    await pilot.pause()
    pilot.app.refresh_frame()  # type: ignore[attr-defined]
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCENES)
def test_scene(snap_compare: Compare, name: str, size: tuple[int, int]) -> None:
    """The state looks as it did when somebody last looked at it."""
    scene: Callable[[], Frame] = SCENES[name]
    app = Console(FakeSource(scene()))
    assert snap_compare(app, terminal_size=size, run_before=_draw)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_starting(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Before the first frame the console says that it is starting."""
    assert snap_compare(Console(FakeSource(None)), terminal_size=size, run_before=_draw)


def test_light_theme(snap_compare: Compare) -> None:
    """The light theme says the same with the same signs."""
    app = Console(FakeSource(fakes.loaded()), theme="omlx-light")
    assert snap_compare(app, terminal_size=(120, 40), run_before=_draw)


def test_help(snap_compare: Compare) -> None:
    """The help shows keys and legend."""
    app = Console(FakeSource(fakes.loaded()))
    assert snap_compare(app, terminal_size=(120, 80), run_before=_draw, press=["question_mark"])


def test_confirm(snap_compare: Compare) -> None:
    """A question has Cancel under the cursor."""
    app = Console(FakeSource(fakes.loaded()))
    assert snap_compare(app, terminal_size=(80, 24), run_before=_draw, press=["u"])
