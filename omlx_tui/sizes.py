"""Sizes as people write and read them: MB = 10⁶, MiB = 2²⁰."""

from __future__ import annotations

from dataclasses import dataclass

import humanize
from pydantic import ByteSize, TypeAdapter, ValidationError

_BYTE_SIZE = TypeAdapter(ByteSize)


def parse_size(text: str) -> int:
    """Turn ``6MB``, ``1.5 GiB`` or ``4096`` into bytes.

    Raises:
        ValueError: the text is no size, or not above zero.
    """
    try:
        size_bytes = int(_BYTE_SIZE.validate_python(text.strip()))
    except ValidationError:
        size_bytes = 0
    if size_bytes <= 0:
        raise ValueError(f"{text!r} is no size. Write 6MB, 4GB, 1.5GiB or a number of bytes.")
    return size_bytes


def format_bytes(size_bytes: int) -> str:
    """Write bytes for a person, in powers of ten: ``4.2 MB``."""
    return humanize.naturalsize(size_bytes, format="%.1f")


@dataclass(frozen=True, slots=True)
class Budget:
    """A memory budget as the operator wrote it: bytes, a share of the device, or ``auto``."""

    text: str
    size_bytes: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``6MB``, ``4GB``, ``60%`` or ``auto``.

        Raises:
            ValueError: it is none of these.
        """
        text = text.strip()
        if text.lower() == "auto":
            return cls(text)
        if text.endswith("%"):
            return cls(text, share=_parse_share(text))
        return cls(text, size_bytes=parse_size(text))

    def resolve(self, *, capacity_bytes: int, auto_bytes: int) -> int:
        """The budget in bytes on a device of that capacity; ``auto_bytes`` is its default."""
        if self.size_bytes is not None:
            return self.size_bytes
        if self.share is not None:
            return max(1, int(capacity_bytes * self.share))
        return auto_bytes


def _parse_share(text: str) -> float:
    try:
        percent = float(text[:-1])
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise ValueError(f"{text!r} is no share of the memory. Write 1% to 100%.")
    return percent / 100
