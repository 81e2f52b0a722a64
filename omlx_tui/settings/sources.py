"""Where settings come from: flags before the environment before the file before the defaults."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, SettingsError, TomlConfigSettingsSource

from omlx_tui import locations
from omlx_tui.settings.model import HostSettings, ModelSettings, SchedulerSettings

Key = tuple[str | int, ...]

_PREFIX = "OMLX_TUI_"


class InvalidSettingsError(ValueError):
    """What is wrong with the settings: one line for each fault, with its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class OriginKind(StrEnum):
    """Who set a value, the strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: a flag, a variable, a file; as text, what to look for."""

    kind: OriginKind
    where: str = ""

    def __str__(self) -> str:
        return self.where or self.kind.value


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings that are valid, and how they came about.

    Attributes:
        settings: the outcome of all sources.
        flags: the settings that were given as flags this time.
        file: the one that was read, if there was one.
        warnings: what looks wrong and is no reason not to start; a line each.
    """

    settings: HostSettings
    flags: frozenset[str] = frozenset()
    file: Path | None = None
    warnings: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()

    def origin_of(self, *key: str | int) -> Origin:
        """Where a value comes from: ``origin_of("port")``, ``origin_of("model", "a", "ttl")``."""
        return _origin_of(self.layers, key)


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says, as it was written; of the environment, the names that are set too."""

    kind: OriginKind
    values: Mapping[str, Any]
    file: Path | None = None
    variables: tuple[str, ...] = ()

    def __contains__(self, key: Key) -> bool:
        """Whether this source sets ``key``, or something inside of which it is."""
        at: object = self.values
        for depth, part in enumerate(key):
            if not isinstance(at, Mapping):
                return depth > 0
            inner = cast("Mapping[object, object]", at)
            if part not in inner:
                return False
            at = inner[part]
        return True

    def origin_of(self, key: Key) -> Origin:
        if self.kind is OriginKind.FLAG:
            return Origin(self.kind, "--" + str(key[0]).replace("_", "-"))
        if self.kind is OriginKind.ENVIRONMENT:
            return Origin(self.kind, _variable_of(key, self.variables))
        return Origin(self.kind, str(self.file))


def load_settings(
    flags: Mapping[str, object] | None = None, config_file: Path | None = None
) -> LoadedSettings:
    """Read every source and make one of them; tables are merged key by key.

    Args:
        flags: what was given on the command line this time, by the name of the setting.
        config_file: this file and no other; else the first of ``locations.config_files()``.

    Raises:
        InvalidSettingsError: something is wrong; it names the place and what would be right.
    """
    file = config_file or next((path for path in locations.config_files() if path.exists()), None)
    layers = (
        Layer(OriginKind.FLAG, dict(flags or {})),
        Layer(OriginKind.ENVIRONMENT, _read_environment(), variables=_variables()),
        Layer(OriginKind.FILE, _read_file(file) if file is not None else {}, file),
    )
    values: dict[str, Any] = {}
    for layer in reversed(layers):
        values = _merged(values, layer.values)
    try:
        settings = HostSettings(**values)
    except ValidationError as error:
        raise InvalidSettingsError(
            [_describe(fault, layers) for fault in error.errors(include_url=False)]
        ) from error
    return LoadedSettings(
        settings=settings,
        flags=frozenset(flags or {}),
        file=file,
        warnings=tuple(_unknown(_variables())),
        layers=layers,
    )


def _read_environment() -> dict[str, Any]:
    try:
        return EnvSettingsSource(HostSettings)()
    except SettingsError as error:
        # Only [model] is written as JSON there.
        variable = _variable_of(("model",), _variables())
        raise InvalidSettingsError(
            [f'{variable}: This is no JSON. Write {{"model id": {{"ttl": "10m"}}}}.']
        ) from error


def _variables() -> tuple[str, ...]:
    return tuple(sorted(name for name in os.environ if name.upper().startswith(_PREFIX)))


def _read_file(file: Path) -> dict[str, Any]:
    """Raises ``InvalidSettingsError`` for a file that is missing, unreadable or no TOML."""
    if not file.exists():
        raise InvalidSettingsError([f"{file}: There is no such file."])
    if not file.is_file():
        raise InvalidSettingsError([f"{file}: This is not a file."])
    try:
        values = TomlConfigSettingsSource(HostSettings, file).toml_data
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettingsError([f"{file}: This is no TOML: {error}"]) from error
    except UnicodeDecodeError as error:
        raise InvalidSettingsError([f"{file}: This is not written in UTF-8."]) from error
    except OSError as error:
        raise InvalidSettingsError([f"{file}: {error.strerror}."]) from error
    return _with_paths_from(file.absolute().parent, values)


def _with_paths_from(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """A path in a file means the same wherever the program is started."""

    def anchored(value: object) -> object:
        if isinstance(value, str):
            return value if value.startswith("~") else str(folder / value)
        if isinstance(value, list):
            return [anchored(item) for item in cast("list[object]", value)]
        return value

    paths = {key: anchored(values[key]) for key in ("models", "journal_file") if key in values}
    return {**values, **paths}


def _merged(weak: Mapping[str, Any], strong: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(weak)
    for key, value in strong.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _merged(cast("Mapping[str, Any]", below), cast("Mapping[str, Any]", value))
        merged[key] = value
    return merged


def _origin_of(layers: Sequence[Layer], key: Key) -> Origin:
    for layer in layers:
        if key and key in layer:
            return layer.origin_of(key)
    return Origin(OriginKind.DEFAULT)


def _variable_of(key: Key, variables: Sequence[str]) -> str:
    """The variable that is set and holds ``key``; else the one that would."""
    names = {name.upper(): name for name in variables}
    candidates = [
        _PREFIX + "__".join(str(part) for part in key[:depth]).upper()
        for depth in range(len(key), 0, -1)
    ]
    return next((names[name] for name in candidates if name in names), candidates[-1])


def _unknown(variables: Sequence[str]) -> Iterator[str]:
    """Warnings, no errors: clusters set variables of their own that begin with a service's name."""
    for name in variables:
        setting = name.upper().removeprefix(_PREFIX).split("__")[0].lower()
        if setting not in HostSettings.model_fields:
            yield f"{name}: There is no setting {setting}.{_hint(setting, HostSettings)}"


# Where pydantic speaks of Python's types to somebody who writes TOML.
_SAID_BETTER = {
    "mapping_type": "Write a table",
    "model_attributes_type": "Write a table",
    "model_type": "Write a table",
    "tuple_type": 'Write a list such as ["one", "two"]',
}


def _describe(fault: ErrorDetails, layers: Sequence[Layer]) -> str:
    """One line: the place, the key, what is wrong with it and what would be right."""
    key: Key = fault["loc"]
    origin = _origin_of(layers, key)
    if not key:
        files = [str(layer.file) for layer in layers if layer.file is not None]
        return ": ".join([*files, fault["msg"].removeprefix("Value error, ")])
    if fault["type"] == "extra_forbidden":
        hint = _hint(str(key[-1]), _table_of(key))
        return f"{origin}: There is no setting {dotted(key)}.{hint}"
    message = _SAID_BETTER.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    given = "" if repr(fault["input"]) in message else f" It is {_shortened(fault['input'])}."
    return f"{origin}: {dotted(key)}: {message.rstrip('.')}.{given}"


def dotted(key: Key) -> str:
    """A key as the file would have it: ``scheduler.max_batch_size``, ``pin[0]``."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part.replace("-", "").replace("_", "")
            is_bare = bare.isascii() and bare.isalnum()
            text += ("." if text else "") + (part if is_bare else repr(part).replace("'", '"'))
    return text


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


_TABLES: dict[str, type[BaseModel]] = {
    "": HostSettings,
    "[scheduler]": SchedulerSettings,
    '[model."its id"]': ModelSettings,
}


def _table_of(key: Key) -> type[BaseModel]:
    if len(key) == 1:
        return HostSettings
    return SchedulerSettings if key[0] == "scheduler" else ModelSettings


def _hint(name: str, table: type[BaseModel]) -> str:
    """The nearest name there, or the table in which it would be known."""
    for heading, other in _TABLES.items():
        if other is not table and name in other.model_fields:
            where = f"in {heading}" if heading else "above the first [table]"
            return f" It belongs {where}."
    near = difflib.get_close_matches(name, list(table.model_fields), n=1)
    return f" Did you mean {near[0]}?" if near else " omlx-tui config --example shows all."
