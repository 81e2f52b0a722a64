"""Sizes as people write them."""

from __future__ import annotations

import pytest

from omlx_tui.sizes import format_bytes, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("6MB", 6_000_000),
        ("6mb", 6_000_000),
        ("4 GB", 4_000_000_000),
        ("2MiB", 2 * 2**20),
        ("1.5GiB", 3 * 2**29),
        (" 512 ", 512),
    ],
)
def test_a_size_is_read(text: str, size_bytes: int) -> None:
    """MB are powers of ten, MiB of two; case and space don't matter."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "lots", "-3MB", "0", "nan", "6 parsecs", "1e400GB", "4Gi"])
def test_a_wrong_size_says_how_to_write_one(text: str) -> None:
    """The message quotes what was written and shows what would be right."""
    with pytest.raises(ValueError, match=r"Write 6MB, 4GB"):
        parse_size(text)


def test_sizes_are_written_in_powers_of_ten() -> None:
    """As the budget is written, so it is shown."""
    assert format_bytes(4_200_000) == "4.2 MB"
    assert format_bytes(0) == "0 Bytes"
