"""What MLX runs on here, and how much memory a pool may take by default.

The only module that knows one device from another. Metal and CUDA keys are read as MLX documents
them for ``mx.device_info``; tests drive them through a double.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from typing import Literal

import psutil

from omlx_tui.engines.errors import DeviceError

DeviceKind = Literal["metal", "cuda", "cpu"]

# Where ``mx.device_info`` says how much memory there is for arrays.
_CAPACITY_KEYS: dict[DeviceKind, str] = {
    "metal": "max_recommended_working_set_size",
    "cuda": "total_memory",
}

# Room for the system, other programs and activations, which no footprint counts.
_BUDGET_SHARE: dict[DeviceKind, float] = {"metal": 0.85, "cuda": 0.85, "cpu": 0.70}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where the models' arrays live.

    Attributes:
        capacity_bytes: all that could hold models: Metal's recommended working set, the card's
            memory, or the machine's RAM.
        available_bytes: of that, what is free now, as far as anybody can say.
    """

    kind: DeviceKind
    name: str
    capacity_bytes: int
    available_bytes: int

    @property
    def default_budget_bytes(self) -> int:
        return int(self.available_bytes * _BUDGET_SHARE[self.kind])


def read_device(
    *,
    device_kind: Callable[[], DeviceKind] | None = None,
    device_info: Callable[[], Mapping[str, str | int]] | None = None,
    ram_bytes: Callable[[], tuple[int, int]] | None = None,
) -> Device:
    """Ask MLX and the system; each source can be replaced by a double.

    Raises:
        DeviceError: MLX has no backend here.
    """
    kind = (device_kind or _mlx_device_kind)()
    info = (device_info or _mlx_device_info)()
    name = str(info.get("device_name") or info.get("architecture") or kind)
    capacity_bytes, available_bytes = (ram_bytes or _ram_bytes)()
    stated = info.get(_CAPACITY_KEYS[kind]) if kind in _CAPACITY_KEYS else None
    if stated is not None:
        capacity_bytes = available_bytes = int(stated)
    return Device(
        kind=kind, name=name, capacity_bytes=capacity_bytes, available_bytes=available_bytes
    )


@cache
def expects_cpu() -> bool:
    """Whether MLX will run on the CPU here, guessed from what is installed.

    For size estimates before MLX has been imported; once a model has loaded, its measured size
    replaces them.
    """
    if platform.system() == "Darwin":
        return False
    names = (distribution.name or "" for distribution in distributions())
    return not any(name.lower().startswith("mlx-cuda") for name in names)


def _mlx_device_kind() -> DeviceKind:
    try:
        import mlx.core as mx
    except ImportError as error:
        raise DeviceError from error
    if mx.default_device() == mx.cpu:
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def _mlx_device_info() -> Mapping[str, str | int]:
    import mlx.core as mx

    return mx.device_info()


def _ram_bytes() -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.total, memory.available
