"""The engines: everything that runs a model, and the one thread that owns MLX."""

from omlx_tui.engines.base import Backend, Engine
from omlx_tui.engines.errors import (
    ContextLengthError,
    EngineClosedError,
    EngineError,
    KVBudgetError,
    LoadFailedError,
    PromptRefusedError,
)
from omlx_tui.engines.factory import make_backend
from omlx_tui.engines.kv import KVCosts, KVShape
from omlx_tui.engines.types import (
    EngineStats,
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    LoadProgress,
    MemoryReading,
    Message,
    ModelSpec,
    PrefillProgress,
    PreparedRequest,
    SamplingParams,
    SchedulerConfig,
    TextDelta,
)

__all__ = [
    "Backend",
    "ContextLengthError",
    "Engine",
    "EngineClosedError",
    "EngineError",
    "EngineStats",
    "FinishReason",
    "Finished",
    "GenerationEvent",
    "GenerationRequest",
    "KVBudgetError",
    "KVCosts",
    "KVShape",
    "LoadFailedError",
    "LoadProgress",
    "MemoryReading",
    "Message",
    "ModelSpec",
    "PrefillProgress",
    "PreparedRequest",
    "PromptRefusedError",
    "SamplingParams",
    "SchedulerConfig",
    "TextDelta",
    "make_backend",
]
