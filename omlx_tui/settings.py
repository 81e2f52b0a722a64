"""What the operator can set, in one model; a sentence under each field."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from omlx_tui import locations
from omlx_tui.client import DEFAULT_PORT
from omlx_tui.engines.types import SchedulerConfig
from omlx_tui.sizes import Budget

# The sample models together take twice this, so that evictions can be seen.
SAMPLE_BUDGET = "8MB"


class HostSettings(BaseModel):
    """How a host is set up."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    models: tuple[Path, ...] = Field(
        default=(), description="Folders that hold models; without one, the sample models."
    )
    max_model_memory: Budget | None = Field(
        default=None,
        description="The budget for weights and KV headroom of all resident models.",
    )
    pin: tuple[str, ...] = Field(default=(), description="Models that are never evicted.")
    host: str = Field(default="127.0.0.1", description="The address the endpoint listens on.")
    port: int = Field(
        default=DEFAULT_PORT, ge=0, le=65535, description="Its port; 0 lets the system choose."
    )
    demo: bool = Field(default=False, description="Start with the synthetic load running.")
    drain_s: float = Field(
        default=5.0, ge=0, description="How long running requests may go on when the host ends."
    )
    scheduler: SchedulerConfig = Field(default_factory=SchedulerConfig)

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.models or (locations.sample_models_dir(),)

    @property
    def budget(self) -> Budget:
        """What was set; else all that the device offers, but little for the little samples."""
        if self.max_model_memory is not None:
            return self.max_model_memory
        return Budget.parse("auto" if self.models else SAMPLE_BUDGET)
