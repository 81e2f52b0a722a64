"""Every setting with its value and where that comes from, as rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from omlx_tui.settings.sources import LoadedSettings, Origin, dotted


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: its key as the file has it, its value as JSON has it, and who set it."""

    key: str
    value: object
    origin: Origin


def rows(loaded: LoadedSettings) -> Iterator[Row]:
    """In the order of the model; of a single model only what is set."""
    for name, value in loaded.settings.model_dump(mode="json", exclude={"model"}).items():
        if isinstance(value, dict):
            for inner, inner_value in cast("dict[str, object]", value).items():
                yield _row(loaded, (name, inner), inner_value)
        else:
            yield _row(loaded, (name,), value)
    for model_id, own in loaded.settings.model.items():
        written: dict[str, Any] = own.model_dump(mode="json", exclude_unset=True)
        for inner, value in written.items():
            yield _row(loaded, ("model", model_id, inner), value)


def _row(loaded: LoadedSettings, key: tuple[str, ...], value: object) -> Row:
    return Row(dotted(key), value, loaded.origin_of(*key))
