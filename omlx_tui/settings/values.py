"""How an operator writes times, sizes, shares and lists; as types for the settings."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, PlainSerializer

from omlx_tui.sizes import Budget, parse_size

_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_HOW_TIMES_ARE_WRITTEN = "Write 90s, 10m, 1h30m or a number of seconds."


def parse_duration(value: object) -> float:
    """Turn ``10m``, ``1h30m``, ``500ms`` or a number into seconds.

    Raises:
        ValueError: it is none of these, or below zero.
    """
    seconds = _as_seconds(value)
    if seconds is None or seconds < 0 or not math.isfinite(seconds):
        raise ValueError(f"{value!r} is no length of time. {_HOW_TIMES_ARE_WRITTEN}")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds as ``parse_duration`` reads them: ``1h30m``."""
    parts: list[str] = []
    for unit in ("d", "h", "m"):
        count, seconds = divmod(seconds, _UNITS_S[unit])
        if count:
            parts.append(f"{count:.0f}{unit}")
    if seconds or not parts:
        parts.append(f"{seconds:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def parse_ttl(value: object) -> float:
    """Like ``parse_duration``; ``never`` is 0, and 0 itself is refused.

    Elsewhere 0 means "unload at once": whoever writes it gets asked.

    Raises:
        ValueError: it is neither ``never`` nor a time above zero.
    """
    if isinstance(value, str) and value.strip().lower() == "never":
        return 0.0
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError("0 says neither at once nor never. Write never, or a time such as 10m.")
    return seconds


def format_ttl(seconds: float) -> str:
    """Write seconds as ``parse_ttl`` reads them."""
    return format_duration(seconds) if seconds else "never"


def _as_seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    text = "".join(value.lower().split())
    if _WHOLE.fullmatch(text):
        return sum(float(count) * _UNITS_S[unit] for count, unit in _PART.findall(text))
    try:
        return float(text)
    except ValueError:
        return None


def _parse_share(value: object) -> object:
    """Numbers are left to the type, and so are words that are no percentage."""
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1]) / 100
        except ValueError:
            raise ValueError(f"{value!r} is no share. Write 25% or 0.25.") from None
    return value


def _parse_budget(value: object) -> Budget:
    if isinstance(value, Budget):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is no size. Write 6MB, 1.5GiB, 60% or auto.")
    return Budget.parse(str(value))


def _parse_size_or_auto(value: object) -> Budget:
    if str(value).strip() == "0":
        return Budget("0", size_bytes=0)
    budget = _parse_budget(value)
    if budget.share is not None:
        raise ValueError(f"{budget.text!r} is a share. Write a size such as 512MB, 0 or auto.")
    return budget


def _parse_size(value: object) -> ByteSize:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is no size. Write 6MB, 4GB, 1.5GiB or a number of bytes.")
    return ByteSize(parse_size(str(value)))


def format_size(size_bytes: int) -> str:
    """Write bytes without losing one: ``16MB``, ``32MiB``, else the plain number."""
    units = {"GB": 10**9, "GiB": 2**30, "MB": 10**6, "MiB": 2**20}
    for unit, factor in units.items():
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def _parse_folders(value: object) -> object:
    """One text is a list as in ``PATH``; a table here is a likely slip."""
    if isinstance(value, dict):
        raise ValueError(
            "This is the list of folders that hold models; "
            'what is set for a single model goes into [model."its id"].'
        )
    if isinstance(value, str):
        return tuple(part for part in value.split(os.pathsep) if part)
    return value


def _expand_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{str(path)!r}: there is no such user.") from error


def _parse_names(value: object) -> object:
    """One text is a list with commas, as an environment variable has to write it."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(cast("Iterable[object]", value)))
    return value


Duration = Annotated[
    float, BeforeValidator(parse_duration), PlainSerializer(format_duration, when_used="json")
]
Deadline = Annotated[Duration, Field(gt=0)]
Ttl = Annotated[float, BeforeValidator(parse_ttl), PlainSerializer(format_ttl, when_used="json")]
Share = Annotated[float, BeforeValidator(_parse_share)]
BudgetValue = Annotated[
    Budget,
    BeforeValidator(_parse_budget),
    PlainSerializer(lambda budget: budget.text, when_used="json"),
]
SizeOrAuto = Annotated[
    Budget,
    BeforeValidator(_parse_size_or_auto),
    PlainSerializer(lambda budget: budget.text, when_used="json"),
]
Size = Annotated[
    ByteSize, BeforeValidator(_parse_size), PlainSerializer(format_size, when_used="json")
]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_parse_names)]
HomePath = Annotated[Path, AfterValidator(_expand_home)]
Folders = Annotated[tuple[HomePath, ...], BeforeValidator(_parse_folders)]
