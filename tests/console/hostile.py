"""Text as an attacker, or a broken tokenizer, would send it."""

from __future__ import annotations

HOSTILE = [
    "[/INST] <<SYS>> [red",
    "[bold]not bold[/bold] [@click=app.quit]quit[/]",
    "[",
    "\\[/",
    "$foreground {} %s %n",
    "\x1b[2J\x1b[H\x1b[31mred",
    "\x1b]0;owned\x07",
    "\x1b]52;c;b3duZWQ=\x1b\\",
    "\x9b31m\x9d0;owned\x9c",
    "\x00\x01\x02\x07\x08\x7f",
    "line one\nline two\r\nline three\u2028four\x0bfive\x0csix",
    "tab\tbed",
    "\u202eright to left\u202c \u2066isolated\u2069",
    "zero\u200bwidth\u200cjoin\u200der\ufeff\u2060",
    "soft\u00adhyphen",
    "狐狸" * 60,
    "👩‍👩‍👧‍👦🏳️‍🌈" * 20,
    "Z\u0301\u0302\u0303\u0304\u0305" * 50,
    "\u0301starts with a mark",
    "\ud800\udfff lone surrogates",
    "\ue000\U000f0000 private",
    "\u3164\u115f\uffa0",
    "\U000e0001\U000e0041",
    "",
    " ",
    "x" * 100_000,
]
