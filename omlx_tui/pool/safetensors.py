"""Sizes from safetensors headers, without reading weights.

The format: eight bytes of header length (little endian), then that many bytes of JSON which give
each tensor's dtype, shape and offsets into the rest of the file
(https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import cast

# The reference implementation refuses larger headers.
_MAX_HEADER_BYTES = 100_000_000

_BITS_PER_VALUE = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}
_RAISED_TO_FP32 = frozenset({"F16", "BF16"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as its header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def held_bytes(self, *, raise_to_fp32: bool) -> int:
        """Bytes it takes in memory, with half precision raised to fp32 if asked."""
        raised = raise_to_fp32 and self.dtype in _RAISED_TO_FP32
        bits = 32 if raised else _BITS_PER_VALUE[self.dtype]
        return math.ceil(math.prod(self.shape) * bits / 8)


def read_tensors(path: Path) -> list[Tensor]:
    """The tensors of one file.

    Raises:
        ValueError: the file is truncated or no safetensors file; the message says which.
        OSError: the file can't be read.
    """
    file_bytes = path.stat().st_size
    with path.open("rb") as file:
        length_field = file.read(8)
        if len(length_field) < 8:
            raise ValueError(f"{path.name} is truncated")
        (header_bytes,) = struct.unpack("<Q", length_field)
        if header_bytes > _MAX_HEADER_BYTES:
            raise ValueError(f"{path.name} is no safetensors file")
        header_text = file.read(header_bytes)
    if len(header_text) < header_bytes:
        raise ValueError(f"{path.name} is truncated")
    return _parse_header(path.name, header_text, data_bytes=file_bytes - 8 - header_bytes)


def _parse_header(name: str, header_text: bytes, *, data_bytes: int) -> list[Tensor]:
    try:
        header = json.loads(header_text)
        tensors = [
            Tensor(tensor_name, str(entry["dtype"]), tuple(int(n) for n in entry["shape"]))
            for tensor_name, entry in _entries(header)
        ]
        end_bytes = max((int(entry["data_offsets"][1]) for _, entry in _entries(header)), default=0)
    except (
        UnicodeDecodeError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError(f"{name} has a broken safetensors header") from error
    if unknown := {t.dtype for t in tensors} - _BITS_PER_VALUE.keys():
        raise ValueError(f"{name} holds tensors of unknown type {', '.join(sorted(unknown))}")
    if end_bytes > data_bytes:
        raise ValueError(f"{name} is truncated: {end_bytes - data_bytes} bytes of data are missing")
    return tensors


def _entries(header: object) -> list[tuple[str, dict[str, list[int]]]]:
    entries = cast("dict[str, dict[str, list[int]]]", header)
    return [(name, entry) for name, entry in entries.items() if name != "__metadata__"]
