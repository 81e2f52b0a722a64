"""Numbers and times: short, aligned, coarse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from omlx_tui.console.format import (
    Align,
    fit,
    format_age,
    format_idle,
    format_percent,
    format_rate,
    format_sum,
    format_uptime,
    split_cells,
)


@given(
    st.text(alphabet="ab狐é-", max_size=30),
    st.integers(0, 20),
    st.sampled_from(("left", "right", "tail")),
)
def test_fit_is_exact(text: str, width: int, align: Align) -> None:
    """However wide its characters are, a cell has the width it was given."""
    assert cell_len(fit(text, width, align)) == width


@given(st.text(alphabet="ab狐", max_size=60), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_split_cells_is_exact(text: str, widths: list[int]) -> None:
    """A text spread over columns fills each to its width."""
    assert [cell_len(piece) for piece in split_cells(text, widths)] == widths


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "·"),
        (0, "now"),
        (9.9, "now"),
        (12, "10s"),
        (59, "50s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86_399, "23h"),
        (86_400, "1d"),
        (1e12, "999d"),
    ],
)
def test_idle_times_are_coarse(seconds: float | None, text: str) -> None:
    """An idle time changes at most every ten seconds, and is at most four cells wide."""
    assert format_idle(seconds) == text


def test_a_load_is_done_only_when_it_is_done() -> None:
    """99.9 % is not written as 100 %, and nothing of nothing is no crash."""
    assert format_percent(999, 1000) == "99%"
    assert format_percent(1000, 1000) == "100%"
    assert format_percent(0, 0) == "0%"


@given(st.floats(0, 1e9))
def test_rates_fit_their_column(rate: float) -> None:
    """A token rate is at most five cells wide."""
    assert len(format_rate(rate)) <= 5


@given(st.integers(0, 10**14), st.integers(0, 10**14))
def test_sums_fit_their_column(first: int, second: int) -> None:
    """Weights and headroom together are at most twelve cells wide."""
    assert len(format_sum(first, second)) <= 12


def test_sums_share_a_unit() -> None:
    """The smaller part is written in the unit of the larger one."""
    assert format_sum(1_900_000, 475_000) == "1.9+0.5 MB"
    assert format_sum(700_000, 175_000) == "700+175 kB"
    assert format_sum(10, 2) == "10+2 B"


def test_ages_and_uptimes() -> None:
    """A live age counts seconds; an uptime never does."""
    assert format_age(59.9) == "59s"
    assert format_age(-1) == "0s"
    assert format_age(61) == "1m"
    assert format_uptime(59) == "<1m"
    assert format_uptime(2 * 3600 + 300) == "2h 05m"
    assert format_uptime(3 * 86_400 + 4 * 3600) == "3d 04h"
