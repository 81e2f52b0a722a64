"""The WebSocket endpoint.

Imports neither MLX nor Textual, and knows the pool as a ``PromptPool`` only.
"""

from omlx_tui.gateway.errors import (
    EndpointError,
    EndpointInUseError,
    EndpointUnusableError,
    UnsafeBindError,
)
from omlx_tui.gateway.server import Gateway
from omlx_tui.gateway.serving import PromptPool
from omlx_tui.gateway.settings import GatewaySettings

__all__ = [
    "EndpointError",
    "EndpointInUseError",
    "EndpointUnusableError",
    "Gateway",
    "GatewaySettings",
    "PromptPool",
    "UnsafeBindError",
]
