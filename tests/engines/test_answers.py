"""The parts of an answer: thoughts, text and calls, as mlx-lm's markers set them apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tool_parsers import json_tools
from mlx_lm.utils import load_tokenizer

from omlx_tui.engines.answers import AnswerFormat, AnswerReader, Piece
from omlx_tui.engines.types import Tool
from tests.engines.driving import LLAMA

TOOL = Tool("weather", parameters={"type": "object"})
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'


@pytest.fixture(scope="module")
def tokenizer() -> TokenizerWrapper:
    """A sample's, with the marks of a model that thinks and calls."""
    made = load_tokenizer(Path(__file__).parents[2] / "sample_models" / LLAMA)
    made._think_start, made._think_end = "<think>", "</think>"
    made._tool_call_start = json_tools.tool_call_start
    made._tool_call_end = json_tools.tool_call_end
    made._tool_parser = json_tools.parse_tool_call
    return made


def read(tokenizer: TokenizerWrapper, text: str, **facts) -> list[tuple[str, str]]:
    """The pieces of a text, neighbours of one kind joined."""
    reader = AnswerReader(tokenizer.detokenizer, AnswerFormat(tokenizer), **facts)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    pieces: list[Piece] = [piece for token in tokens for piece in reader.feed(token)]
    joined: list[tuple[str, str]] = []
    for piece in pieces + reader.finish():
        said = f"{piece.call.name}{piece.call.arguments}" if piece.call else piece.text
        if joined and joined[-1][0] == piece.kind:
            said = joined.pop()[1] + said
        joined.append((piece.kind, said))
    return joined


def test_thoughts_text_and_calls_come_apart(tokenizer: TokenizerWrapper) -> None:
    """Without their marks, and without the line breaks that set them apart."""
    answer = read(tokenizer, f"<think>\nHm.</think>\n\nLook: {CALL}", tools=(TOOL,))
    assert answer == [("reasoning", "Hm."), ("text", "Look: "), ("call", 'weather{"city": "Köln"}')]


def test_a_call_that_nobody_offered_or_nobody_can_read_is_text(tokenizer: TokenizerWrapper) -> None:
    """Nothing that the model wrote is lost."""
    assert read(tokenizer, CALL) == [("text", CALL)]
    broken = "<tool_call>{no json</tool_call>"
    assert read(tokenizer, broken, tools=(TOOL,)) == [("text", broken)]


def test_the_answer_ends_after_one_call_if_only_one_is_wanted(tokenizer: TokenizerWrapper) -> None:
    """The second is not reported."""
    answer = read(tokenizer, CALL + CALL, tools=(TOOL,), one_call=True)
    assert answer == [("call", 'weather{"city": "Köln"}')]


def test_a_thought_that_the_prompt_opened_is_one(tokenizer: TokenizerWrapper) -> None:
    """Stop strings are looked for in the text only."""
    answer = read(tokenizer, "a stop b</think>c stop d", starts_in="reasoning", stop=("stop",))
    assert answer == [("reasoning", "a stop b"), ("text", "c ")]
