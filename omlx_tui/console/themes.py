"""Themes: one TOML file each, checked before Textual ever sees them.

Textual does not validate a theme when it is registered; a bad colour would take the console down
at the moment somebody switches to it. Here a bad file is named with its fault, and the others load.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from textual.color import Color, ColorParseError
from textual.theme import Theme

DEFAULT_THEME = "omlx-dark"

_COLOURS = (
    "primary",
    "secondary",
    "warning",
    "error",
    "success",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "boost",
)
_KEYS = {"name", "dark", "ansi", "colors", "variables"}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_VARIABLE = re.compile(r"[a-z][a-z0-9-]*")
_ALPHA = re.compile(r"^(?P<colour>.+?)\s+(?P<percent>\d{1,3})%$")
_TEXT_STYLES = {"none", "bold", "b", "dim", "italic", "i", "underline", "u", "reverse", "strike"}


@dataclass(frozen=True, slots=True)
class ThemeFault:
    """A file that is no theme, and why."""

    path: Path
    problem: str

    def describe(self) -> str:
        return f"theme {self.path.name}: {self.problem}"


@dataclass(frozen=True, slots=True)
class ThemeLibrary:
    """What was found; of two themes with one name the later file counts."""

    themes: tuple[Theme, ...] = ()
    faults: tuple[ThemeFault, ...] = ()


def shipped_themes_folder() -> Path:
    """The themes that come with the program: in the wheel, or in a checkout of the repository."""
    package = Path(__file__).resolve().parent.parent
    in_wheel = package / "_data" / "themes"
    return in_wheel if in_wheel.is_dir() else package.parent / "themes"


def load_themes(folders: Iterable[Path] | None = None) -> ThemeLibrary:
    """Read every ``*.toml`` in these folders, or the shipped ones."""
    themes: dict[str, Theme] = {}
    faults: list[ThemeFault] = []
    for folder in (shipped_themes_folder(),) if folders is None else folders:
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = read_theme(path)
            except (OSError, ValueError) as error:
                faults.append(ThemeFault(path, str(error)))
            else:
                themes[theme.name] = theme
    return ThemeLibrary(tuple(themes.values()), tuple(faults))


def read_theme(path: Path) -> Theme:
    """Read one theme.

    Raises:
        OSError: it can't be read.
        ValueError: it is no theme; the message says where and what.
    """
    with path.open("rb") as file:
        document = tomllib.load(file)
    unknown = document.keys() - _KEYS
    if unknown:
        raise ValueError(f"unknown key {min(unknown)!r}; known are {', '.join(sorted(_KEYS))}")
    colours = _table(document, "colors")
    unknown = colours.keys() - set(_COLOURS)
    if unknown:
        raise ValueError(f"colors.{min(unknown)} is unknown; known are {', '.join(_COLOURS)}")
    if "primary" not in colours:
        raise ValueError("colors.primary is missing")
    for key, value in colours.items():
        _check_colour(f"colors.{key}", value)
    variables = _table(document, "variables")
    for key, value in variables.items():
        _check_variable(key, value)
    return Theme(
        name=_name(document.get("name", path.stem)),
        dark=_flag(document, "dark", default=True),
        ansi=_flag(document, "ansi", default=False),
        variables=variables,
        **cast("dict[str, Any]", colours),
    )


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"name is {value!r}; use small letters, digits and dashes")
    return value


def _flag(document: Mapping[str, object], key: str, *, default: bool) -> bool:
    value = document.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}; use true or false")
    return value


def _table(document: Mapping[str, object], key: str) -> dict[str, str]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise ValueError(f"[{key}] is not a table")
    entries = cast("dict[str, object]", table)
    for name, value in entries.items():
        if not isinstance(value, str):
            raise ValueError(f"{key}.{name} is {value!r}; use a text in quotes")
    return cast("dict[str, str]", table)


def _check_variable(name: str, value: str) -> None:
    """Only what CSS can take there: text styles, or a colour with an optional share of opacity."""
    where = f"variables.{name}"
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{where} is no name of a variable")
    if name.endswith("-style"):
        wrong = set(value.removeprefix("not ").split()) - _TEXT_STYLES - {"not"}
        if wrong or not value.strip():
            raise ValueError(f"{where} is {value!r}; use {', '.join(sorted(_TEXT_STYLES))}")
        return
    match = _ALPHA.match(value)
    colour = match["colour"] if match else value
    if name.startswith("tone-") or colour != "auto":
        _check_colour(where, value if name.startswith("tone-") else colour)


def _check_colour(where: str, value: str) -> None:
    try:
        Color.parse(value)
    except ColorParseError:
        raise ValueError(f"{where} is {value!r}, which is no colour") from None
