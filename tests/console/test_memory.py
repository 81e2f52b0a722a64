"""The memory panel: bars on one scale, parts that add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlx_tui.console.lines import line_cells
from omlx_tui.console.panels.memory import Use, memory_lines, model_use, usage_bar
from omlx_tui.engines.types import LoadProgress
from omlx_tui.pool.snapshot import ModelState

from . import fakes
from .driving import running, show

SIZES = st.integers(0, 10_000)


@given(SIZES, SIZES, SIZES, st.integers(1, 10_000), st.integers(0, 80), st.integers(0, 20_000))
def test_a_bar_has_its_width(
    weights: int, kv: int, reserved: int, scale: int, width: int, peak: int
) -> None:
    """Whatever the figures are, even above the budget, a bar is as wide as it should be."""
    bar = usage_bar(Use(weights, kv, reserved), scale, width, peak_bytes=peak)
    assert line_cells(bar) == width


def test_a_bar_is_on_the_budgets_scale() -> None:
    """Half of the budget is half of the bar, whatever else there is."""
    bar = usage_bar(Use(weights=25, kv=0, reserved=25), 100, 40)
    assert [span.text for span in bar] == ["█" * 10, "░" * 10, "·" * 20]


def test_a_little_is_not_nothing() -> None:
    """What is in memory is seen, however small."""
    assert usage_bar(Use(weights=1), 10**9, 40)[0].text == "█"


def test_parts_add_up_to_what_is_held() -> None:
    """Weights, KV cache and reserve of a model are the bytes it counts against the budget."""
    for model in (*fakes.loaded().snapshot.models, *fakes.loading().snapshot.models):
        assert model_use(model).held == model.held_bytes


def test_a_loading_model_fills_up() -> None:
    """While it loads, only what has been read counts as weights; the rest is reserved."""
    model = fakes.model(
        "m",
        ModelState.LOADING,
        weights_bytes=200,
        held_bytes=250,
        load=LoadProgress(50, 200),
    )
    assert model_use(model) == Use(weights=50, kv=0, reserved=200)


def test_a_cache_above_its_headroom_counts() -> None:
    """A model that holds more than weights and headroom shows what it holds."""
    model = fakes.busy("m", rank=0, weights=100, kv_bytes=60, held_bytes=160)
    assert model_use(model) == Use(weights=100, kv=60, reserved=0)


@given(st.integers(1, 250), st.integers(1, 60))
def test_lines_fit_any_width(width: int, height: int) -> None:
    """No layout fails at a width; from 30 cells on no line is wider than the panel."""
    for picture in (fakes.empty(), fakes.loaded(), fakes.loading()):
        lines = memory_lines(picture.snapshot, width, height)
        if width >= 36:
            assert max(map(line_cells, lines)) <= width


async def test_figures_are_written_out() -> None:
    """Used, reserved, free, budget, peak and MLX's own figures can be read without colours."""
    async with running(fakes.loaded(), (80, 24)) as (app, pilot):
        text = app.text()
        for figure in ("budget 6.0 MB", "4.0 MB", "855.0 kB", "1.1 MB", "5.4 MB", "81%"):
            assert figure in text
        assert "MLX active 3.9 MB" in text
        assert "1.9+0.5 MB" in text
        await show(app, pilot, fakes.empty())
        assert "nothing loaded yet" in app.text()
