"""Sizes from safetensors headers, without reading weights.

The format: eight bytes of header length (little endian), then that many bytes of JSON which give
each tensor's dtype, shape and offsets into the rest of the file
(https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, cast

# The reference implementation refuses larger headers.
_MAX_HEADER_BYTES = 100_000_000

# A clone without Git LFS holds a few lines of text, beginning with this, in place of each weight.
_LFS_POINTER = b"version https://git-lfs"

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


class DamagedFileError(ValueError):
    """The file is not whole, or not what its name says: fetching it again would help."""


class Tensor(NamedTuple):
    """One tensor as its header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def held_bytes(self, *, raise_to_fp32: bool) -> int:
        """Bytes it takes in memory, with half precision raised to fp32 if asked."""
        raised = raise_to_fp32 and self.dtype in _RAISED_TO_FP32
        return _size_bytes(self.shape, 32 if raised else _BITS_PER_VALUE[self.dtype])


def weights_bytes(
    files: Iterable[Path], weight_map: Mapping[str, str], *, raise_to_fp32: bool
) -> int:
    """Bytes that the tensors of some files take together in memory, each name counted once.

    A name that several files hold is counted as in the file that ``weight_map`` (of the index)
    gives for it, or else as large as the largest: which one is loaded is then undefined.

    Raises:
        DamagedFileError, ValueError: one can't be loaded, or there is no tensor in them.
        OSError: one can't be read.
    """
    sizes: dict[str, int] = {}
    decided: set[str] = set()
    for file in files:
        for tensor in read_tensors(file):
            name = tensor.name
            size_bytes = tensor.held_bytes(raise_to_fp32=raise_to_fp32)
            if weight_map.get(name) == file.name:
                sizes[name] = size_bytes
                decided.add(name)
            elif name not in decided:
                sizes[name] = max(size_bytes, sizes.get(name, 0))
    if not sizes:
        raise DamagedFileError("its safetensors files hold no tensors")
    return sum(sizes.values())


def read_tensors(path: Path) -> list[Tensor]:
    """The tensors of one file.

    Raises:
        DamagedFileError: the file is empty, truncated or no safetensors file.
        ValueError: it is a Git LFS pointer or holds tensors of an unknown type.
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        file_bytes = file.seek(0, 2)
        file.seek(0)
        beginning = file.read(len(_LFS_POINTER))
        if beginning == _LFS_POINTER:
            raise ValueError(f"{path.name} is a Git LFS pointer; run git lfs pull in its folder")
        if len(beginning) < 8:
            raise DamagedFileError(
                f"{path.name} is {'truncated' if beginning else 'truncated: it is empty'}"
            )
        (header_bytes,) = struct.unpack("<Q", beginning[:8])
        if header_bytes > _MAX_HEADER_BYTES:
            raise DamagedFileError(f"{path.name} is no safetensors file")
        file.seek(8)
        header_text = file.read(header_bytes)
    if len(header_text) < header_bytes:
        raise DamagedFileError(f"{path.name} is truncated")
    return _parse_header(path.name, header_text, data_bytes=file_bytes - 8 - header_bytes)


def _parse_header(name: str, header_text: bytes, *, data_bytes: int) -> list[Tensor]:
    try:
        header: object = json.loads(header_text)
        tensors: list[Tensor] = []
        end_bytes = 0
        for tensor, begin, end in _entries(header):
            bits = _BITS_PER_VALUE.get(tensor.dtype)
            if bits is not None and (begin < 0 or _size_bytes(tensor.shape, bits) != end - begin):
                raise ValueError(f"{tensor.name!r} is not as large as its shape")
            tensors.append(tensor)
            end_bytes = max(end_bytes, end)
    except (
        UnicodeDecodeError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise DamagedFileError(f"{name} has a broken safetensors header") from error
    if unknown := {tensor.dtype for tensor in tensors} - _BITS_PER_VALUE.keys():
        raise ValueError(f"{name} holds tensors of unknown type {', '.join(sorted(unknown))}")
    if end_bytes > data_bytes:
        raise DamagedFileError(
            f"{name} is truncated: {end_bytes - data_bytes} bytes of data are missing"
        )
    return tensors


def _entries(header: object) -> Iterator[tuple[Tensor, int, int]]:
    """Each tensor with where its data begins and ends; fails on whatever is no header."""
    for name, entry in cast("dict[str, dict[str, list[int]]]", header).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        shape = tuple(map(int, entry["shape"]))
        if shape and min(shape) < 0:
            raise ValueError("a dimension is negative")
        yield Tensor(name, str(entry["dtype"]), shape), int(begin), int(end)


def _size_bytes(shape: tuple[int, ...], bits: int) -> int:
    # In whole numbers: a quotient of floats is not exact above 2**53.
    return -(-math.prod(shape) * bits // 8)
