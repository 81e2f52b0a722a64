"""From tokens to text: whole characters only, and nothing of a stop string."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import load_tokenizer

from omlx_tui.engines.answers import AnswerFormat, AnswerReader, Piece
from tests.engines.driving import LLAMA


@pytest.fixture(scope="module")
def tokenizer() -> TokenizerWrapper:
    return load_tokenizer(Path(__file__).parents[2] / "sample_models" / LLAMA)


def reader_of(tokenizer: TokenizerWrapper, *stop: str) -> AnswerReader:
    return AnswerReader(tokenizer.detokenizer, AnswerFormat(tokenizer), stop=stop)


def said(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def pieces(tokenizer: TokenizerWrapper, text: str, stop: tuple[str, ...] = ()) -> list[str]:
    """Feed a text's tokens one by one, then finish."""
    assembler = reader_of(tokenizer, *stop)
    out = [
        said(assembler.feed(token)) for token in tokenizer.encode(text, add_special_tokens=False)
    ]
    return [*out, said(assembler.finish())]


@pytest.mark.parametrize(
    "text",
    ["Once upon a time", "naïve café", "狐と提灯", "🦊🏮 fox", "a\n\n  b\tc", "👨‍👩‍👧 e\u0301"],
)
def test_the_pieces_make_the_text_and_no_piece_is_broken(
    tokenizer: TokenizerWrapper, text: str
) -> None:
    """Bytes of a character are held back until all are there."""
    made = pieces(tokenizer, text)
    assert "".join(made) == text
    assert not any("\ufffd" in piece for piece in made)


def test_a_half_character_at_the_end_is_shown_as_such(tokenizer: TokenizerWrapper) -> None:
    """A model that stops in the middle of one loses nothing that was whole."""
    tokens = tokenizer.encode("ab🦊", add_special_tokens=False)
    assembler = reader_of(tokenizer)
    fed = [piece for token in tokens[:-1] for piece in assembler.feed(token)]
    text = said(fed + assembler.finish())
    assert text.startswith("ab")
    assert "\ufffd" in text


def test_a_stop_string_over_several_tokens_is_found(tokenizer: TokenizerWrapper) -> None:
    """What precedes it is emitted, it itself and what follows never."""
    made = pieces(tokenizer, "The fox and the lantern slept.", stop=("lantern",))
    assert "".join(made) == "The fox and the "


def test_the_first_of_several_stop_strings_wins(tokenizer: TokenizerWrapper) -> None:
    """Wherever it comes."""
    made = pieces(tokenizer, "one two three", stop=("three", "two"))
    assert "".join(made) == "one "


def test_the_beginning_of_a_stop_string_is_held_back_and_then_given(
    tokenizer: TokenizerWrapper,
) -> None:
    """Text that turns out to be harmless is not lost, neither on the way nor at the end."""
    assert "".join(pieces(tokenizer, "a lantern", stop=("lantern!",))) == "a lantern"
    assert "".join(pieces(tokenizer, "a lamp", stop=("lantern",))) == "a lamp"


def test_after_a_stop_nothing_more_comes(tokenizer: TokenizerWrapper) -> None:
    """Tokens that were under way are swallowed."""
    assembler = reader_of(tokenizer, "x")
    for token in tokenizer.encode("axb", add_special_tokens=False):
        assembler.feed(token)
    assert assembler.is_stopped
    assert assembler.feed(tokenizer.encode("more", add_special_tokens=False)[0]) == []
    assert assembler.finish() == []
