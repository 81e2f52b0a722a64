"""A commented ``omlx-tui.toml``, made from the settings' own descriptions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from omlx_tui.settings.model import HostSettings, ModelSettings, SchedulerSettings

_INTRODUCTION = """\
Settings of omlx-tui. It reads ./omlx-tui.toml, else the one in your configuration folder, or the
one named by --config. What begins with # alone is a default: take the # away and change it. What
begins with # and a space is an explanation or an example.

Flags are stronger than environment variables (OMLX_TUI_PORT=9000, OMLX_TUI_PIN=one,two,
OMLX_TUI_SCHEDULER__MAX_BATCH_SIZE=8), and those are stronger than this file."""

# Tables have to follow the plain keys in TOML.
_TABLES = {"scheduler", "model"}


def example_toml() -> str:
    """The file's text: valid as it is, and still the defaults without any ``#`` before a key."""
    defaults = HostSettings().model_dump(mode="json")
    lines = [*_comment(_INTRODUCTION), ""]
    for name, field in HostSettings.model_fields.items():
        if name not in _TABLES:
            lines += _setting(name, field, defaults[name])
    lines += _comment(HostSettings.model_fields["scheduler"].description or "")
    lines += ["#[scheduler]", *_table(SchedulerSettings, defaults["scheduler"])]
    lines += _comment(HostSettings.model_fields["model"].description or "")
    lines += ['# [model."org/name"]', *_table(ModelSettings, {})]
    return "\n".join(lines).rstrip() + "\n"


def _table(table: type[BaseModel], defaults: Mapping[str, object]) -> list[str]:
    lines: list[str] = []
    for name, field in table.model_fields.items():
        lines += _setting(name, field, defaults.get(name))
    return lines


def _setting(name: str, field: FieldInfo, default: object) -> list[str]:
    """The sentence, then the default; an example where no default can be written down."""
    if default is None or field.examples:
        example = field.examples[0] if field.examples else True
        line = f"# {name} = {as_toml(example)}"
    else:
        line = f"#{name} = {as_toml(default)}"
    return [*_comment(field.description or ""), line, ""]


def _comment(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield "#"
        yield from textwrap.wrap(paragraph, 98, initial_indent="# ", subsequent_indent="# ")


def as_toml(value: object) -> str:
    """A plain value as TOML has it, which for these is as JSON has it."""
    if isinstance(value, list):
        return f"[{', '.join(as_toml(item) for item in cast('list[object]', value))}]"
    return json.dumps(value, ensure_ascii=False)
