"""What the operator changed in the console, remembered from one start to the next.

Who wins: what is remembered is newer than the file and the environment, and wins over both. A flag
is newer still: ``--pin``, ``--ttl`` or ``--max-model-memory`` given this time sets aside what is
remembered about pins, times to live or the budget, and forgets nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from omlx_tui.settings.model import HostSettings, ModelSettings
from omlx_tui.sizes import Budget

_log = structlog.get_logger(__name__)

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class OperatorState(BaseModel):
    """What was changed, by model id; what was not is not in it.

    Attributes:
        pins: whether a model is pinned; ``False`` undoes a pin of the settings.
        ttl_s: its time to live in seconds; 0 is never.
        budget_bytes: the budget for all models.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    pins: Mapping[str, bool] = Field(default_factory=dict[str, bool])
    ttl_s: Mapping[str, Seconds] = Field(default_factory=dict[str, float])
    budget_bytes: int | None = Field(default=None, gt=0)

    def with_pin(self, model_id: str, *, is_pinned: bool) -> OperatorState:
        return self.model_copy(update={"pins": {**self.pins, model_id: is_pinned}})

    def with_ttl(self, model_id: str, ttl_s: float | None) -> OperatorState:
        """``None`` goes back to what the settings say."""
        others = {key: value for key, value in self.ttl_s.items() if key != model_id}
        own = {} if ttl_s is None else {model_id: ttl_s}
        return self.model_copy(update={"ttl_s": {**others, **own}})

    def with_budget(self, budget_bytes: int | None) -> OperatorState:
        """``None`` goes back to what the settings say."""
        return self.model_copy(update={"budget_bytes": budget_bytes})

    def yielding_to(self, flags: Collection[str]) -> OperatorState:
        """What of it counts this time, given the settings that were flags."""
        return OperatorState(
            pins={} if "pin" in flags else self.pins,
            ttl_s={} if "ttl" in flags else self.ttl_s,
            budget_bytes=None if "max_model_memory" in flags else self.budget_bytes,
        )

    def over(self, settings: HostSettings) -> HostSettings:
        """The settings with what is remembered in their place.

        Models that only the operator pinned are not added: a setting that names a model that is
        gone is an error, a memory of one is not. ``extra_pins`` has them.
        """
        model = dict(settings.model)
        for model_id, ttl_s in self.ttl_s.items():
            own = model.get(model_id, ModelSettings())
            model[model_id] = own.model_copy(update={"ttl": ttl_s})
        for model_id, own in model.items():
            if own.pin and not self.pins.get(model_id, True):
                model[model_id] = own.model_copy(update={"pin": False})
        changes: dict[str, object] = {
            "pin": tuple(model_id for model_id in settings.pin if self.pins.get(model_id, True)),
            "model": model,
        }
        if self.budget_bytes is not None:
            changes["max_model_memory"] = Budget(
                str(self.budget_bytes), size_bytes=self.budget_bytes
            )
        return settings.model_copy(update=changes)

    def extra_pins(self, settings: HostSettings) -> tuple[str, ...]:
        """Models that the operator pinned and the settings do not; pin those that are there."""
        return tuple(
            model_id
            for model_id, is_pinned in self.pins.items()
            if is_pinned and model_id not in settings.pins
        )


def _log_warning(message: str) -> None:
    _log.warning("operator_state", what=message)


class StateFile:
    """Keeps an ``OperatorState`` on disk; several hosts may share one file.

    A reader sees the old state or the new one, whatever happens to the writer: the new one is
    complete on disk before it takes the place of the old. A change reads the file again under a
    lock, so that two hosts keep both their changes. Blocks on the disk: not for an event loop.
    """

    def __init__(self, path: Path, *, warn: Callable[[str], None] = _log_warning) -> None:
        self.path = path
        self._warn = warn

    def read(self) -> OperatorState:
        """What is remembered; nothing, with a warning, if it can't be read. Never raises.

        A file that makes no sense is set aside under the name ``….bad``.
        """
        try:
            return self._parse()
        except FileNotFoundError:
            return OperatorState()
        except OSError as error:
            self._warn(f"{self.path} can't be read, nothing is remembered: {error.strerror}")
            return OperatorState()
        except ValueError:
            with suppress(OSError), self._locked():
                return self._parse_or_set_aside()
            self._warn(f"{self.path} makes no sense, and can't be set aside")
            return OperatorState()

    def change(self, change: Callable[[OperatorState], OperatorState]) -> OperatorState:
        """Apply a change to what is on disk now, and keep the outcome.

        Raises:
            OSError: it could not be kept; the file is as it was.
        """
        with self._locked():
            state = change(self._parse_or_set_aside())
            self._replace(state.model_dump_json(indent=2).encode() + b"\n")
        return state

    def _parse(self) -> OperatorState:
        return OperatorState.model_validate_json(self.path.read_bytes())

    def _parse_or_set_aside(self) -> OperatorState:
        """Only under the lock: another host may have written a good file since the last look."""
        try:
            return self._parse()
        except FileNotFoundError:
            return OperatorState()
        except ValidationError as error:
            bad = self.path.with_name(self.path.name + ".bad")
            self.path.replace(bad)
            reason = error.errors(include_url=False)[0]["msg"]
            self._warn(f"{self.path} makes no sense and is now {bad.name}: {reason}")
            return OperatorState()

    def _replace(self, content: bytes) -> None:
        # One name for all: whoever holds the lock is the only writer, and what a killed one left
        # behind is overwritten.
        draft = self.path.with_name(self.path.name + ".new")
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        # The rename itself is on disk only with the folder; some file systems can't be asked to.
        with suppress(OSError):
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextmanager
    def _locked(self) -> Generator[None]:
        """One writer at a time, in all processes; the lock ends with its process."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(self.path.name + ".lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
