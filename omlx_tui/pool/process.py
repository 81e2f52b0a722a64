"""How much memory the process and the machine have left."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from omlx_tui.engines.types import MemoryReading

# Left to the system and to other programs on machines that are large enough.
_LEFT_TO_OTHERS_BYTES = 8_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """Bytes the process holds, and bytes that are free on the machine."""

    process_bytes: int
    available_bytes: int


def default_process_limit_bytes(total_ram_bytes: int) -> int:
    """All of the RAM but 8 GB; half of it on machines where that would leave less."""
    return max(total_ram_bytes - _LEFT_TO_OTHERS_BYTES, total_ram_bytes // 2)


class ProcessMeter:
    """Reads what the process holds: MLX's own figures and the rest.

    The resident set does not fall after an unload on Linux, since glibc keeps its arenas; so what
    MLX holds comes from MLX, and the rest is the least that was ever seen beside it.
    """

    def __init__(self, mlx_memory: Callable[[], MemoryReading]) -> None:
        self._mlx_memory = mlx_memory
        self._process = psutil.Process()
        self._rest_bytes: int | None = None

    def read(self) -> ProcessReading:
        memory = self._mlx_memory()
        mlx_bytes = memory.active_bytes + memory.cache_bytes
        rest_bytes = max(0, self._process.memory_info().rss - mlx_bytes)
        known_bytes = rest_bytes if self._rest_bytes is None else self._rest_bytes
        self._rest_bytes = min(rest_bytes, known_bytes)
        return ProcessReading(
            process_bytes=mlx_bytes + self._rest_bytes,
            available_bytes=psutil.virtual_memory().available,
        )


def trim_heap() -> None:
    """Have the C library give freed memory back to the system, where it can (glibc)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
