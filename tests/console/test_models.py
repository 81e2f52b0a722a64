"""The LRU queue: order, cursor, signs, and how little it repaints."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.coordinate import Coordinate

from omlx_tui.console.panels.models import COLUMNS, ModelsTable, model_row
from omlx_tui.console.source import Frame
from omlx_tui.console.table import fit_columns
from omlx_tui.pool.snapshot import ModelSnapshot, ModelState

from . import fakes
from .driving import Console, running, show


def table(app: Console) -> ModelsTable:
    return app.main_screen.query_one(ModelsTable)


def cursor(app: Console) -> str | None:
    model = app.main_screen.models.cursor_model
    return None if model is None else model.model_id


def again(picture: Frame, **changes: object) -> Frame:
    """An equal frame that is another object, or one that differs in its snapshot."""
    return replace(picture, snapshot=replace(picture.snapshot, seq=2, **changes))


def row_texts(app: Console) -> list[str]:
    return [
        "".join(cell.plain for cell in table(app).get_row_at(row))
        for row in range(table(app).row_count)
    ]


async def test_rows_stand_in_snapshot_order() -> None:
    """The table keeps the pool's order: most recently used first."""
    picture = fakes.loaded()
    async with running(picture) as (app, pilot):
        ids = [model.model_id for model in picture.snapshot.models]
        assert table(app).shown_keys == ids
        turned = again(picture, models=picture.snapshot.models[::-1])
        await show(app, pilot, turned)
        assert table(app).shown_keys == ids[::-1]
        assert all(key in text for key, text in zip(ids[::-1], row_texts(app), strict=True))


async def test_the_cursor_stays_on_its_row() -> None:
    """When the order changes, rows come and rows go, the cursor follows its model."""
    picture = fakes.loaded()
    models = picture.snapshot.models
    async with running(picture) as (app, pilot):
        await pilot.press("j")
        assert cursor(app) == "llama-1m-fp32"
        for changed in (models[::-1], models[1:], (fakes.model("new"), *models), models[1:2]):
            await show(app, pilot, again(picture, models=changed))
            assert cursor(app) == "llama-1m-fp32"


async def test_the_cursor_keeps_its_place_when_its_row_goes() -> None:
    """A model that disappears leaves the cursor where it was, or on the last row."""
    picture = fakes.loaded()
    async with running(picture) as (app, pilot):
        await pilot.press("G")
        assert cursor(app) == "phi3-1m-bf16"
        await show(app, pilot, again(picture, models=picture.snapshot.models[:2]))
        assert cursor(app) == "llama-1m-fp32"


@pytest.mark.parametrize("name", ["empty", "loaded", "loading", "evicting", "error"])
async def test_an_equal_frame_repaints_nothing(name: str) -> None:
    """The same picture again, as another object, sends not one byte."""
    picture: Frame = getattr(fakes, name)()
    async with running(picture) as (app, pilot):
        app.written = 0
        await show(app, pilot, again(picture))
        await show(app, pilot, picture)
        assert app.written == 0


async def test_one_number_repaints_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed figure costs its cell, in bytes on the wire too."""
    picture = fakes.loaded()
    first, *others = picture.snapshot.models
    async with running(picture) as (app, pilot):
        marked: list[Coordinate] = []
        refresh = table(app).refresh_coordinate
        monkeypatch.setattr(
            table(app), "refresh_coordinate", lambda at: marked.append(at) or refresh(at)
        )
        for rate in (98.0, 99.0):
            app.written = 0
            marked.clear()
            changed = replace(first, tokens_per_s=rate)
            await show(app, pilot, again(picture, models=(changed, *others)))
        assert marked == [Coordinate(0, 8)]
        assert "99.0" in app.text()
        assert app.written < 300


async def test_a_new_order_repaints_only_what_moved() -> None:
    """Two models that change places cost two rows, not the panel."""
    picture = fakes.loaded()
    first, second, *others = picture.snapshot.models
    async with running(picture) as (app, pilot):
        app.written = 0
        await show(app, pilot, again(picture, models=(second, first, *others)))
        assert 0 < app.written < 5000


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (fakes.resident("m", rank=0, idle_s=5), "● ready"),
        (fakes.resident("m", rank=0, idle_s=5, is_next_victim=True), "▼ next out"),
        (fakes.busy("m", rank=0), "▶ busy"),
        (fakes.resident("m", rank=0, idle_s=5, leases=1), "▶ busy"),
        (fakes.resident("m", rank=0, idle_s=5, state=ModelState.DRAINING), "◐ draining"),
        (fakes.resident("m", rank=0, idle_s=5, state=ModelState.UNLOADING), "▽ unloading"),
        (fakes.model("m"), "○ on disk"),
        (fakes.model("m", ModelState.LOADING), "◌ loading"),
        (fakes.model("m", ModelState.FAILED), "✗ failed"),
        (fakes.model("m", is_servable=False), "⊘ unservable"),
    ],
)
def test_each_state_has_its_word(model: ModelSnapshot, expected: str) -> None:
    """A state is told by glyph and word, not by colour alone."""
    assert model_row(model, fakes.NOW_S).cells["state"].text == expected


async def test_a_loading_row_shows_its_progress() -> None:
    """1.0 of 2.3 MB is 43 %."""
    async with running(fakes.loading(), (80, 24)) as (app, _):
        assert "◌ loading 43%" in app.text()


async def test_an_estimated_size_is_marked() -> None:
    """A tilde stands before a size that wasn't measured."""
    async with running(fakes.loaded(), (80, 24)) as (app, _):
        assert "~3.9 MB" in app.text()
        assert " 1.9 MB" in app.text()


async def test_a_failed_row_says_why() -> None:
    """The reason is in the row, and whole under the table when the cursor is there."""
    async with running(fakes.error(), (120, 40)) as (app, pilot):
        reason = "model.safetensors ends after 1.2 of 3.9 MB"
        assert reason in row_texts(app)[3]
        await pilot.press("j", "j", "j")
        await pilot.pause()
        assert f"✗ failed: {reason} ━" in app.text()


def test_columns_come_with_the_width() -> None:
    """Wider is never less, the base columns are there at 80, and a row never overflows."""
    before: set[str] = set()
    for width in range(20, 260):
        fitted = fit_columns(COLUMNS, width)
        keys = {column.key for column, _ in fitted}
        assert before <= keys
        before = keys
        if width >= 45:
            assert sum(columns for _, columns in fitted) + len(fitted) <= width
    at_80 = {column.key for column, _ in fit_columns(COLUMNS, 77)}
    base = {"state", "pin", "model", "size", "headroom", "active", "queued", "idle", "rate"}
    assert at_80 == base
