"""The one gate through which text from outside reaches the operator's terminal.

Model names, client names, event lines and error messages come from files, sockets and libraries.
Left alone they can retitle the terminal, write to its clipboard, move its cursor, turn a line
around or crash the markup parser. What passes here is one bounded line of visible characters.
"""

from __future__ import annotations

import unicodedata

from rich.text import Text

DEFAULT_MAX_LENGTH = 300
"""Characters; a line on the widest terminal, twice."""

ELLIPSIS = "…"
REPLACEMENT = "�"

_MAX_COMBINING = 2
"""Marks kept on one character: enough for every living script, too few to paint over neighbours."""

_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
"""Letters and symbols with no ink: a name made of them would look empty."""

_SPACES = frozenset({"Zs", "Zl", "Zp"})
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_MARKS = frozenset({"Mn", "Me", "Mc"})


def safe_str(value: object, max_length: int = DEFAULT_MAX_LENGTH) -> str:
    """Turn anything into one line of at most ``max_length`` visible characters.

    Line breaks, tabs and all kinds of spaces become a plain space. Controls (C0, C1, ESC), bidi and
    zero-width characters, lone surrogates and characters without a glyph become ``�``: an operator
    should see that a name holds something he cannot see.
    """
    # A 5 MB line is cut before it is looked at; one more character tells that it was cut.
    raw = str(value)[: max_length + 1]
    cleaned = _replace_unsafe(raw)
    if len(raw) > max_length:
        return cleaned[: max(0, max_length - 1)] + ELLIPSIS
    return cleaned


def safe_text(value: object, max_length: int = DEFAULT_MAX_LENGTH) -> Text:
    """:func:`safe_str` as a Rich ``Text``: never parsed as markup, never wrapped."""
    return Text(safe_str(value, max_length), no_wrap=True, overflow="ellipsis", end="")


def _replace_unsafe(raw: str) -> str:
    """Map each character to itself, a space, ``�`` or nothing; never makes the text longer."""
    if raw.isascii() and raw.isprintable():
        return raw
    kept: list[str] = []
    marks = 0
    for character in raw:
        category = unicodedata.category(character)
        if category in _MARKS:
            marks += 1
            if kept and marks <= _MAX_COMBINING and not _is_variation_selector(character):
                kept.append(character)
            continue
        marks = 0
        kept.append(_visible(character, category))
    return "".join(kept)


def _visible(character: str, category: str) -> str:
    if category in _SPACES or character in "\t\n\r\v\f":
        return " "
    if category in _HIDDEN or character in _BLANK_LETTERS:
        return REPLACEMENT
    return character


def _is_variation_selector(character: str) -> bool:
    """They ask for another glyph of another width, about which terminals disagree."""
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
