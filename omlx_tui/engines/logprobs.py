"""Tokens as clients read them in log probabilities: text, and the bytes they stand for."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

from omlx_tui.engines.commands import TokenLogprobs
from omlx_tui.engines.types import Logprob

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_REPLACEMENT = "\ufffd"
# Of a token that can't be chosen; JSON knows no infinity. The same figure as OpenAI's.
_IMPOSSIBLE = -9999.0


class TokenSpeller:
    """Spells single tokens of one tokenizer, mlx-lm's ``TokenizerWrapper``."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._spelled: dict[int, tuple[str, bytes]] = {}

    def logprob(self, token: int, logprobs: TokenLogprobs) -> Logprob:
        """A token's report, with its rivals'."""
        top = tuple(self._logprob(other, value) for other, value in logprobs.top)
        return replace(self._logprob(token, logprobs.logprob), top=top)

    def _logprob(self, token: int, value: float) -> Logprob:
        return Logprob(*self._spell(token), max(value, _IMPOSSIBLE))

    def _spell(self, token: int) -> tuple[str, bytes]:
        if token not in self._spelled:
            utf8 = self._bytes_of(token)
            self._spelled[token] = (utf8.decode("utf-8", "replace"), utf8)
        return self._spelled[token]

    def _bytes_of(self, token: int) -> bytes:
        piece: str | None = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:  # the model's vocabulary is padded beyond the tokenizer's
            return b""
        if byte := _BYTE_TOKEN.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        text: str = self._tokenizer.decode([token])
        if "▁" in piece:
            # Decoders take the space of a text's first word away; in the middle it is one.
            return piece.replace("▁", " ").encode()
        if _REPLACEMENT in text:
            return _byte_level(piece) or text.encode()
        return text.encode()


def _byte_level(piece: str) -> bytes | None:
    """The bytes of a GPT-2 style token, None if it is not one."""
    try:
        return bytes(_byte_of_character()[character] for character in piece)
    except KeyError:
        return None


@cache
def _byte_of_character() -> dict[str, int]:
    # Not at the top, for the reason that ``StopFilter`` gives.
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}
