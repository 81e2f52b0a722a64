"""Where the pool gets its backend from. Importing this imports no MLX."""

from __future__ import annotations

from omlx_tui.engines.base import Backend
from omlx_tui.engines.types import SchedulerConfig


def make_backend(config: SchedulerConfig) -> Backend:
    """The real backend. MLX itself is imported on its own thread, when a model loads."""
    from omlx_tui.engines.backend import MLXBackend

    return MLXBackend(config)
