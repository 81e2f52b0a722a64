"""What there is to set, in one model; a sentence under each field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidateAs,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    ForceDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from omlx_tui import locations
from omlx_tui.client import DEFAULT_PORT
from omlx_tui.engines.types import SamplingParams, SchedulerConfig
from omlx_tui.pool.options import ModelOptions, PoolOptions
from omlx_tui.settings.values import (
    BudgetValue,
    Deadline,
    Duration,
    Folders,
    HomePath,
    Name,
    Names,
    Share,
    Size,
    SizeOrAuto,
    Ttl,
)
from omlx_tui.sizes import Budget

# The sample models together take twice this, so that evictions can be seen.
SAMPLE_BUDGET = "8MB"

_POOL = PoolOptions()
_SCHEDULER = SchedulerConfig()


class ModelSettings(BaseModel):
    """What is set for one model; what is left out is as for all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ttl: Ttl | None = Field(
        default=None,
        description="Unload it after this long without a request; never keeps it.",
        examples=["1h30m"],
    )
    pin: bool = Field(default=False, description="Never evict it.")
    alias: Names = Field(
        default=(), description="Other names by which clients may ask for it.", examples=[["chat"]]
    )
    context_limit: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of prompt and answer together, if fewer than the model allows.",
        examples=[8192],
    )
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=2,
        description="The temperature where a request names none; 0 is greedy.",
        examples=[0.7],
    )
    top_p: float | None = Field(
        default=None, gt=0, le=1, description="The same for top_p.", examples=[0.95]
    )
    top_k: int | None = Field(
        default=None, ge=0, description="The same for top_k; 0 is off.", examples=[40]
    )
    min_p: float | None = Field(
        default=None, ge=0, le=1, description="The same for min_p; 0 is off.", examples=[0.05]
    )

    def options(self) -> ModelOptions:
        """The same as the pool takes it."""
        return ModelOptions(
            ttl_s=self.ttl,
            context_tokens=self.context_limit,
            sampling=SamplingParams(
                temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p
            ),
        )


class SchedulerSettings(BaseModel):
    """``SchedulerConfig`` as the operator writes it, within bounds."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    max_batch_size: int = Field(
        default=_SCHEDULER.max_batch_size,
        ge=1,
        description="Requests of one model that are decoded together; more wait their turn.",
    )
    prefill_batch_size: int = Field(
        default=_SCHEDULER.prefill_batch_size,
        ge=1,
        description="Prompts of one model that are read side by side.",
    )
    prefill_step_tokens: int = Field(
        default=_SCHEDULER.prefill_step_tokens,
        ge=1,
        description="Prompt tokens read per turn; fewer keep other answers smoother.",
    )
    load_slice_bytes: Size = Field(
        default=ByteSize(_SCHEDULER.load_slice_bytes),
        description="Weights read per turn while a model loads; less keeps other answers smoother.",
    )
    raise_to_fp32_on_cpu: bool = Field(
        default=_SCHEDULER.raise_to_fp32_on_cpu,
        description="Hold 16-bit weights as 32-bit on the CPU: larger, and up to 20 times faster.",
    )

    def config(self) -> SchedulerConfig:
        """The same as the engines take it."""
        return SchedulerConfig(**self.model_dump())


def _keep_config(value: object, validate: ValidatorFunctionWrapHandler) -> SchedulerConfig:
    """A ready config passes as it is, with fields that can't be set from outside."""
    return value if isinstance(value, SchedulerConfig) else validate(value)


def _scheduler_as_json(config: SchedulerConfig) -> dict[str, Any]:
    return SchedulerSettings.model_validate(config).model_dump(mode="json")


Scheduler = Annotated[
    SchedulerConfig,
    ValidateAs(SchedulerSettings, SchedulerSettings.config),
    WrapValidator(_keep_config),
    PlainSerializer(_scheduler_as_json, when_used="json"),
]


class HostSettings(BaseSettings):
    """How a host is set up.

    Constructed directly, it is made of its arguments and the defaults alone: neither the
    environment nor a file is read. ``load_settings`` reads them.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="OMLX_TUI_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        # Lists are written with commas or colons there, see ``values``.
        enable_decoding=False,
        validate_default=False,
    )

    models: Folders = Field(
        default=(),
        description="Folders that hold models; without one, the sample models.",
        examples=[["~/models"]],
    )
    max_model_memory: BudgetValue | None = Field(
        default=None,
        description="The budget for all resident models: 6MB, 24GB, 1.5GiB, 60% of the device or "
        f"auto. Without it: auto, and {SAMPLE_BUDGET} for the sample models.",
        examples=["24GB"],
    )
    headroom_share: Share = Field(
        default=_POOL.headroom_share,
        ge=0,
        le=10,
        description="Set aside for the KV cache of a model, as a share of its weights.",
    )
    pin: Names = Field(default=(), description="Models that are never evicted.")
    preload: Names = Field(default=(), description="Models that are loaded when the host starts.")
    ttl: Ttl = Field(
        default=_POOL.ttl_s,
        description="Unload a model after this long without a request: 10m, 1h30m or never.",
    )
    max_waiting: int = Field(
        default=_POOL.max_waiting,
        ge=1,
        description="Requests that may wait for a model; one more is refused at once.",
    )
    load_timeout: Deadline = Field(
        default=_POOL.load_timeout_s, description="After this long a load is given up."
    )
    drain_timeout: Duration = Field(
        default=_POOL.drain_timeout_s,
        description="How long running requests may go on when the operator unloads their model.",
    )
    process_memory_limit: BudgetValue = Field(
        default=Budget("auto"),
        description="What the whole process may take: a size, a share of the RAM or auto.",
    )
    soft_mark: Share = Field(
        default=0.85,
        gt=0,
        le=1,
        description="From this share of the limit on, caches are given back and idle models leave.",
    )
    hard_mark: Share = Field(
        default=0.95,
        gt=0,
        le=1,
        description="From this share on, loads are cancelled too, and requests if that is allowed.",
    )
    allow_abort: bool = Field(
        default=False,
        description="At the hard mark, abort the newest request of the coldest busy model.",
    )
    buffer_cache_limit: SizeOrAuto = Field(
        default=Budget("auto"),
        description="What MLX may keep of freed buffers: a size, 0 for nothing, or auto.",
    )
    prefix_cache: bool = Field(
        default=True, description="Keep the KV cache of prompts for others that begin alike."
    )
    host: Name = Field(default="127.0.0.1", description="The address the endpoint listens on.")
    port: int = Field(
        default=DEFAULT_PORT, ge=0, le=65535, description="Its port; 0 lets the system choose."
    )
    drain_s: Duration = Field(
        default=5.0, description="How long running requests may go on when the host ends."
    )
    demo: bool = Field(default=False, description="Start with the synthetic load running.")
    journal: bool = Field(default=True, description="Write every event to the journal.")
    journal_file: HomePath | None = Field(
        default=None,
        description="Where the journal is; without it, beside the log. One host per journal.",
        examples=["~/omlx-journal.jsonl"],
    )
    journal_max_size: Size = Field(
        default=ByteSize(16 * 10**6), description="At this size the journal begins a new file."
    )
    journal_backups: int = Field(
        default=4, ge=0, le=1000, description="How many full files of it are kept."
    )
    scheduler: Scheduler = Field(
        default=_SCHEDULER, description="How models share the device's time."
    )
    model: Annotated[Mapping[Name, ModelSettings], ForceDecode] = Field(
        default_factory=dict[str, ModelSettings],
        description="What is set for single models, by id.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    @model_validator(mode="after")
    def _marks_are_in_order(self) -> Self:
        if self.soft_mark >= self.hard_mark:
            raise ValueError(
                f"soft_mark ({self.soft_mark:g}) has to be below hard_mark ({self.hard_mark:g})."
            )
        return self

    @model_validator(mode="after")
    def _aliases_are_distinct(self) -> Self:
        owners: dict[str, str] = {}
        for model_id, own in self.model.items():
            for alias in own.alias:
                other = owners.setdefault(alias, model_id)
                if other != model_id:
                    raise ValueError(f"the alias {alias!r} is both {other}'s and {model_id}'s.")
        return self

    @property
    def roots(self) -> tuple[Path, ...]:
        return self.models or (locations.sample_models_dir(),)

    @property
    def budget(self) -> Budget:
        """What was set; else all that the device offers, but little for the little samples."""
        if self.max_model_memory is not None:
            return self.max_model_memory
        return Budget.parse("auto" if self.models else SAMPLE_BUDGET)

    @property
    def pins(self) -> tuple[str, ...]:
        """All models that are pinned at the start, wherever that was written."""
        by_table = (model_id for model_id, own in self.model.items() if own.pin)
        return tuple(dict.fromkeys((*self.pin, *by_table)))

    @property
    def aliases(self) -> Mapping[str, str]:
        """Other names of models, and whose they are."""
        return {alias: model_id for model_id, own in self.model.items() for alias in own.alias}

    @property
    def journal_path(self) -> Path | None:
        """Where the journal goes; ``None`` means that there is none."""
        if not self.journal:
            return None
        return self.journal_file or locations.journal_file()

    def scheduler_config(self) -> SchedulerConfig:
        """What the engines want to know: ``scheduler``, with what was set about the caches."""
        config = self.scheduler
        if "prefix_cache" in self.model_fields_set:
            config = replace(config, prefix_cache=self.prefix_cache)
        if "buffer_cache_limit" in self.model_fields_set:
            limit_bytes = self.buffer_cache_limit.size_bytes
            config = replace(config, buffer_cache_limit_bytes=limit_bytes)
        return config

    def pool_options(self) -> PoolOptions:
        """What the pool wants to know."""
        return PoolOptions(
            headroom_share=self.headroom_share,
            ttl_s=self.ttl,
            max_waiting=self.max_waiting,
            load_timeout_s=self.load_timeout,
            drain_timeout_s=self.drain_timeout,
            models=MappingProxyType(
                {model_id: own.options() for model_id, own in self.model.items()}
            ),
            aliases=self.aliases,
        )
