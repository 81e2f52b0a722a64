"""Every path the program knows by itself."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_APP = "omlx-tui"


def sample_models_dir() -> Path:
    """The models that travel along: inside a wheel, or beside the package in a checkout."""
    return _travelling("sample_models")


def log_file() -> Path:
    """Where a console writes its log, since the terminal is taken."""
    return platformdirs.user_log_path(_APP, appauthor=False) / "omlx-tui.log"


def _travelling(name: str) -> Path:
    package = Path(__file__).parent
    installed = package / "_data" / name
    return installed if installed.is_dir() else package.parent / name
