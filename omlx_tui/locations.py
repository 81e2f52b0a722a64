"""Every path the program knows by itself."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_APP = "omlx-tui"
_CONFIG_NAME = "omlx-tui.toml"


def sample_models_dir() -> Path:
    """The models that travel along: inside a wheel, or beside the package in a checkout."""
    return _travelling("sample_models")


def config_files() -> tuple[Path, ...]:
    """Where settings are looked for; the first that exists is read, and no other."""
    return (
        Path(_CONFIG_NAME),
        platformdirs.user_config_path(_APP, appauthor=False) / _CONFIG_NAME,
    )


def state_file() -> Path:
    """What the operator changed in the console."""
    return platformdirs.user_state_path(_APP, appauthor=False) / "state.json"


def log_file() -> Path:
    """Where a console writes its log, since the terminal is taken."""
    return platformdirs.user_log_path(_APP, appauthor=False) / "omlx-tui.log"


def journal_file() -> Path:
    """Every event, for programs; beside the log."""
    return platformdirs.user_log_path(_APP, appauthor=False) / "journal.jsonl"


def _travelling(name: str) -> Path:
    package = Path(__file__).parent
    installed = package / "_data" / name
    return installed if installed.is_dir() else package.parent / name
