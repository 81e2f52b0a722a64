"""The gate for text from outside."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlx_tui.console.safe_text import REPLACEMENT, safe_str, safe_text

from .hostile import HOSTILE

ALLOWED = {"L", "M", "N", "P", "S"}


def test_plain_text_passes_unchanged() -> None:
    """What is harmless is shown as it is, other scripts too."""
    for text in ("mlx-community/Qwen3-4B [4bit]", "Füchse & Wölfe", "狐狸的故事", "قصة", "हिन्दी"):
        assert safe_str(text) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_loses_its_power(text: str) -> None:
    """No control, format, surrogate or invisible character is left, on one bounded line."""
    assert_harmless(safe_str(text, 50))
    assert len(safe_str(text, 50)) <= 50


@given(st.text(alphabet=st.characters(codec=None), max_size=200))
def test_any_text_is_harmless(text: str) -> None:
    """Whatever the characters are, the result can be printed and encoded."""
    assert_harmless(safe_str(text))


def assert_harmless(text: str) -> None:
    text.encode()
    for character in text:
        assert character == " " or unicodedata.category(character)[0] in ALLOWED, hex(
            ord(character)
        )


def test_line_breaks_become_spaces() -> None:
    """A name with line breaks is still one line."""
    assert safe_str("a\nb\tc\u2028d\u00a0e") == "a b c d e"


def test_what_is_hidden_is_seen() -> None:
    """A name with an invisible character does not look like the one without."""
    assert safe_str("qwen\u200b") == f"qwen{REPLACEMENT}"
    assert safe_str("\x1b[2J") == f"{REPLACEMENT}[2J"
    assert safe_str("\u202egnp.exe") == f"{REPLACEMENT}gnp.exe"


def test_a_long_line_is_cut_with_a_sign() -> None:
    """Five megabytes come out as the asked length, ending in an ellipsis."""
    assert safe_str("x" * 5_000_000, 10) == "xxxxxxxxx…"
    assert safe_str("x" * 10, 10) == "x" * 10


def test_marks_do_not_pile_up() -> None:
    """A character carries a few marks, not hundreds that paint over other rows."""
    assert len(safe_str("Z" + "\u0301" * 200)) == 3


def test_markup_is_not_parsed() -> None:
    """Brackets stay brackets."""
    text = safe_text("[/INST] <<SYS>> [red")
    assert text.plain == "[/INST] <<SYS>> [red"
    assert not text.spans
