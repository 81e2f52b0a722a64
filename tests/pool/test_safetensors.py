"""Sizes from headers: exact, and broken files named."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from omlx_tui.pool.safetensors import Tensor, read_tensors
from tests.model_folders import write_safetensors


@pytest.mark.parametrize(
    ("dtype", "shape", "held", "raised"),
    [
        ("F32", (3, 4), 48, 48),
        ("F16", (3, 4), 24, 48),
        ("BF16", (3, 4), 24, 48),
        ("U32", (2, 8), 64, 64),
        ("U8", (5,), 5, 5),
        ("F4", (3,), 2, 2),
        ("F32", (), 4, 4),
        ("I64", (0, 7), 0, 0),
    ],
)
def test_a_tensor_knows_what_it_will_take(
    dtype: str, shape: tuple[int, ...], held: int, raised: int
) -> None:
    """Shape times width; half precision doubles where it is raised to fp32."""
    tensor = Tensor("w", dtype, shape)
    assert tensor.held_bytes(raise_to_fp32=False) == held
    assert tensor.held_bytes(raise_to_fp32=True) == raised


def test_a_header_is_read_without_the_weights(tmp_path: Path) -> None:
    """Every tensor with name, dtype and shape; the metadata is none."""
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"a": ("F16", [2, 3], 12), "b": ("U32", [4], 16)})
    assert read_tensors(path) == [Tensor("a", "F16", (2, 3)), Tensor("b", "U32", (4,))]


def header(**entries: object) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "truncated"),
        (b"\x10\0\0", "truncated"),
        (struct.pack("<Q", 50) + b"{}", "truncated"),
        (struct.pack("<Q", 2**60), "no safetensors file"),
        (struct.pack("<Q", 2) + b"[]", "broken safetensors header"),
        (struct.pack("<Q", 4) + b"\xff\xfe{}", "broken safetensors header"),
        (struct.pack("<Q", 60_000) + b"[" * 60_000, "broken safetensors header"),
        (header(w={"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}), "broken"),
        (header(w={"dtype": "F32"}), "broken safetensors header"),
        (header(w={"dtype": "F99", "shape": [1], "data_offsets": [0, 0]}), "unknown type F99"),
        (
            header(w={"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}),
            "8 bytes of data are missing",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_fault(tmp_path: Path, content: bytes, fault: str) -> None:
    """Never a crash, never a traceback: one line that says which file and what."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=fault) as failure:
        read_tensors(path)
    assert "model.safetensors" in str(failure.value)
