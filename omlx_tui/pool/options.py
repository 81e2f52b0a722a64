"""How a pool treats its models: what holds for all, and what was set for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from omlx_tui.engines.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What was set for one model; ``None`` and empty mean: as for all.

    Attributes:
        ttl_s: seconds without a request after which it is unloaded; 0 means never.
        context_tokens: a limit below what the model's own config states.
        sampling: defaults for what a request leaves open, before the model's own.
    """

    ttl_s: float | None = None
    context_tokens: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What holds for all models.

    Attributes:
        headroom_share: of the weights, on top of them, set aside for the KV cache.
        ttl_s: seconds without a request after which a model is unloaded; 0 means never.
        wait_timeout_s: how long a request may wait for room before it is refused.
        max_waiting: callers that may wait for a model; one more is refused at once.
        load_timeout_s: after which a load is given up.
        drain_timeout_s: how long running requests may go on when the operator unloads a model.
        retry_after_s: how long a failed load is not tried again; doubles with each failure up to
            ``retry_after_max_s``. The operator, and changed files, end it at once.
        models: what was set for single models, by id.
        aliases: other names of models, to their ids.
    """

    headroom_share: float = 0.25
    ttl_s: float = 0.0
    wait_timeout_s: float = 60.0
    max_waiting: int = 64
    load_timeout_s: float = 600.0
    drain_timeout_s: float = 30.0
    retry_after_s: float = 5.0
    retry_after_max_s: float = 300.0
    models: Mapping[str, ModelOptions] = field(
        default_factory=lambda: MappingProxyType[str, ModelOptions]({})
    )

    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType[str, str]({}))

    def of(self, model_id: str) -> ModelOptions:
        """What was set for one model."""
        return self.models.get(model_id, ModelOptions())

    def ttl_of(self, model_id: str) -> float:
        """Seconds, 0 for never."""
        own = self.of(model_id).ttl_s
        return self.ttl_s if own is None else own
