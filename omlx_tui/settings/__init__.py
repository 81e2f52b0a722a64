"""What the operator can set, where it comes from, and how it is written.

``model`` is what there is to set, ``values`` how times, sizes and shares are written, ``sources``
reads flags, the environment and the file, ``report`` and ``example`` show them to a person.
"""

from __future__ import annotations

from omlx_tui.settings.model import (
    SAMPLE_BUDGET,
    HostSettings,
    ModelSettings,
    SchedulerSettings,
)
from omlx_tui.settings.sources import (
    InvalidSettingsError,
    LoadedSettings,
    Origin,
    OriginKind,
    load_settings,
)

__all__ = [
    "SAMPLE_BUDGET",
    "HostSettings",
    "InvalidSettingsError",
    "LoadedSettings",
    "ModelSettings",
    "Origin",
    "OriginKind",
    "SchedulerSettings",
    "load_settings",
]
