"""The pool: which models are in memory, who leaves next, and why.

Imports neither MLX nor Textual nor websockets; ``docs/architecture.md`` has the rules.
"""

from omlx_tui.pool.errors import (
    InsufficientMemoryError,
    LoadCancelledError,
    ModelBusyError,
    ModelLoadError,
    ModelNotFoundError,
    ModelNotServableError,
    PoolClosedError,
    PoolError,
    QueueFullError,
    WaitTimedOutError,
)
from omlx_tui.pool.events import EventLog, PoolEvent
from omlx_tui.pool.options import ModelOptions, PoolOptions
from omlx_tui.pool.pool import EnginePool
from omlx_tui.pool.serving import Accepted, RequestEvent, Waiting
from omlx_tui.pool.snapshot import (
    LoadPlan,
    ModelSnapshot,
    ModelState,
    PoolSnapshot,
    RequestSnapshot,
    RequestState,
)

__all__ = [
    "Accepted",
    "EnginePool",
    "EventLog",
    "InsufficientMemoryError",
    "LoadCancelledError",
    "LoadPlan",
    "ModelBusyError",
    "ModelLoadError",
    "ModelNotFoundError",
    "ModelNotServableError",
    "ModelOptions",
    "ModelSnapshot",
    "ModelState",
    "PoolClosedError",
    "PoolError",
    "PoolEvent",
    "PoolOptions",
    "PoolSnapshot",
    "QueueFullError",
    "RequestEvent",
    "RequestSnapshot",
    "RequestState",
    "WaitTimedOutError",
    "Waiting",
]
