"""Sizes from headers: exact, and broken files named."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omlx_tui.pool.safetensors import Tensor, read_tensors, weights_bytes
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
        (struct.pack("<Q", 0) + bytes(50), "broken safetensors header"),
        (header(w={"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}), "broken"),
        (header(w={"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}) + bytes(4), "broken"),
        (header(w={"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}), "broken"),
        (header(w={"dtype": "U8", "shape": [float("inf")], "data_offsets": [0, 1]}), "broken"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "run git lfs pull"),
    ],
)
def test_a_broken_file_is_named_with_its_fault(tmp_path: Path, content: bytes, fault: str) -> None:
    """Never a crash, never a traceback: one line that says which file and what."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=fault) as failure:
        read_tensors(path)
    assert "model.safetensors" in str(failure.value)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "F4", "?"]) | JSON_VALUES,
        "shape": st.lists(st.integers()) | JSON_VALUES,
        "data_offsets": st.lists(st.integers(), min_size=2, max_size=2) | JSON_VALUES,
    },
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.dictionaries(st.text(), ENTRIES | JSON_VALUES) | JSON_VALUES)
def test_any_header_is_read_or_refused(tmp_path: Path, content: object) -> None:
    """Whatever the JSON holds: sizes that are not negative, or a ValueError."""
    path = tmp_path / "model.safetensors"
    text = json.dumps(content).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    try:
        tensors = read_tensors(path)
    except ValueError:
        return
    assert all(0 <= tensor.held_bytes(raise_to_fp32=False) <= 64 for tensor in tensors)


@pytest.mark.parametrize(
    ("weight_map", "held"),
    [
        ({}, 40 + 8),
        ({"w": "b.safetensors"}, 20 + 8),
        ({"w": "a.safetensors"}, 40 + 8),
        ({"w": "elsewhere.safetensors", "unheard": "a.safetensors"}, 40 + 8),
    ],
)
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_name_in_several_files_counts_once(
    tmp_path: Path, order: str, weight_map: dict[str, str], held: int
) -> None:
    """As in the file that the index gives, else as the largest, whatever the files' order."""
    write_safetensors(tmp_path / "a.safetensors", {"w": ("F32", [10], 40)})
    write_safetensors(tmp_path / "b.safetensors", {"w": ("F16", [10], 20), "v": ("F64", [1], 8)})
    files = [tmp_path / f"{name}.safetensors" for name in order]
    assert weights_bytes(files, weight_map, raise_to_fp32=False) == held


def test_files_without_a_tensor_are_damaged(tmp_path: Path) -> None:
    """Nothing could be loaded from them."""
    write_safetensors(tmp_path / "model.safetensors", {})
    with pytest.raises(ValueError, match="hold no tensors"):
        weights_bytes([tmp_path / "model.safetensors"], {}, raise_to_fp32=False)
