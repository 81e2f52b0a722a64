"""Themes: what is wrong with a file is said, and the others load."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlx_tui.console.themes import load_themes, read_theme, shipped_themes_folder

from . import fakes
from .driving import running


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


GOOD = '[colors]\nprimary = "#6cb6ff"\n'


def test_shipped_themes_are_sound() -> None:
    """Every theme that is shipped loads."""
    library = load_themes()
    assert not library.faults
    assert {"omlx-dark", "omlx-light"} <= {theme.name for theme in library.themes}
    assert shipped_themes_folder().is_dir()


def test_a_bad_file_is_named_and_the_others_load(tmp_path: Path) -> None:
    """One broken file costs one theme."""
    write(tmp_path, "bad", '[colors]\nprimary = "blurple"\n')
    write(tmp_path, "good", GOOD)
    library = load_themes([tmp_path])
    assert [theme.name for theme in library.themes] == ["good"]
    (fault,) = library.faults
    assert fault.describe() == "theme bad.toml: colors.primary is 'blurple', which is no colour"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[colors]\nprimary = "red\n', "line 2"),
        ("[colors]\n", "colors.primary is missing"),
        ('[colors]\nprimary = "red"\nhue = "red"\n', "colors.hue is unknown"),
        ("[colors]\nprimary = 3\n", "colors.primary is 3"),
        ('colors = "red"\n', "[colors] is not a table"),
        ('wonky = 1\n[colors]\nprimary = "red"\n', "unknown key 'wonky'"),
        ('dark = "yes"\n[colors]\nprimary = "red"\n', "dark is 'yes'"),
        ('name = "No Spaces"\n[colors]\nprimary = "red"\n', "name is 'No Spaces'"),
        (GOOD + '[variables]\nborder = "blurple 20%"\n', "variables.border"),
        (GOOD + '[variables]\nlink-style = "wavy"\n', "variables.link-style"),
        (GOOD + '[variables]\ntone-good = "auto 87%"\n', "variables.tone-good"),
        (GOOD + '[variables]\n"x; }" = "red"\n', "is no name of a variable"),
    ],
)
def test_a_fault_says_where_and_what(tmp_path: Path, text: str, part: str) -> None:
    """The message has the place and the value that is wrong."""
    with pytest.raises(ValueError, match=r".") as caught:
        read_theme(write(tmp_path, "bad", text))
    assert part in str(caught.value)


async def test_a_bad_theme_is_reported_on_the_screen(tmp_path: Path) -> None:
    """The console starts with the themes it has and says which file is broken."""
    write(tmp_path, "bad", '[colors]\nprimary = "blurple"\n')
    write(tmp_path, "good", GOOD + '[variables]\ntone-good = "#00ff00"\n')
    themes = load_themes([tmp_path])
    async with running(fakes.loaded(), themes=themes) as (app, _):
        assert app.theme == "good"
        assert any("bad.toml" in message for message in app.messages())


async def test_an_unknown_theme_is_reported() -> None:
    """A misspelt name starts the default theme and says which there are."""
    async with running(fakes.loaded(), theme="omlx-drak") as (app, _):
        assert app.theme == "omlx-dark"
        assert any("omlx-light" in message for message in app.messages())


async def test_a_theme_can_be_chosen() -> None:
    """The console starts with the theme it was given."""
    async with running(fakes.loaded(), theme="omlx-light") as (app, _):
        assert app.theme == "omlx-light"
        assert not app.messages()
