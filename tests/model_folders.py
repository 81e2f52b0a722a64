"""Model folders with real headers and no weights worth reading, for tests of names and sizes."""

from __future__ import annotations

import json
import struct
from pathlib import Path


def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """Write a file of zeros; ``tensors`` maps a name to dtype, shape and bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for name, (dtype, shape, size_bytes) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [offset, offset + size_bytes],
        }
        offset += size_bytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


def write_model(folder: Path, *, weights_bytes: int = 1000, model_type: str = "llama") -> Path:
    """A folder that discovery takes for a model with fp32 weights of that size."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer.json").write_text("{}")
    values = weights_bytes // 4
    write_safetensors(folder / "model.safetensors", {"w": ("F32", [values], values * 4)})
    return folder


def write_hub_model(
    cache: Path, repository: str, *, revision: str = "aaa", is_main: bool = True
) -> Path:
    """One snapshot in a hub cache, its files links to blobs; returns the snapshot's folder."""
    folder = cache / ("models--" + repository.replace("/", "--"))
    snapshot = write_model(folder / "snapshots" / revision)
    blobs = folder / "blobs"
    blobs.mkdir(exist_ok=True)
    for file in sorted(snapshot.iterdir()):
        blob = blobs / f"{revision}-{file.stem}"
        file.rename(blob)
        file.symlink_to(Path("..", "..", "blobs", blob.name))
    if is_main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(revision)
    return snapshot
