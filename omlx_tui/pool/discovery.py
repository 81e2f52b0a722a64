"""Which models a folder holds, how large they will be, and why one can't be served.

Reads configuration and headers only: nothing found is ever executed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from omlx_tui.engines.model_config import read_json_object
from omlx_tui.engines.model_types import is_supported
from omlx_tui.pool.safetensors import read_tensors

# A root, an organisation, a model: deeper folders are not looked into.
_MAX_DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A folder that looks like a model.

    Attributes:
        weights_bytes: the estimate from the headers, as the weights will be held.
        problem: why it can't be served, empty if it can.
    """

    model_id: str
    path: Path
    model_type: str
    weights_bytes: int
    problem: str = ""


def find_models(root: Path, *, raise_to_fp32: bool) -> list[FoundModel]:
    """All models below ``root`` (which may be one itself), by id.

    Ids are the folder's path below the root: ``name`` or ``org/name``; a root that is itself a
    model gives its own name. ``raise_to_fp32`` says how the weights will be held.

    Raises:
        FileNotFoundError: there is no such folder.
        NotADirectoryError: it is a file.
    """
    root = root.expanduser().resolve()
    if not root.exists():
        raise FileNotFoundError(f"There is no folder {root}. Name one that holds models.")
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is a file. Name the folder that holds the models.")
    found = {
        model_id: _examine(model_id, path, raise_to_fp32=raise_to_fp32)
        for model_id, path in _candidates(root)
    }
    return [found[model_id] for model_id in sorted(found)]


def _candidates(root: Path) -> Iterator[tuple[str, Path]]:
    if _looks_like_model(root):
        yield root.name, root
        return
    yield from _below(root, prefix="", depth=1)


def _below(folder: Path, *, prefix: str, depth: int) -> Iterator[tuple[str, Path]]:
    for child in _subfolders(folder):
        model_id = f"{prefix}{child.name}"
        if _looks_like_model(child):
            yield model_id, child
        elif depth < _MAX_DEPTH:
            yield from _below(child, prefix=f"{model_id}/", depth=depth + 1)


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                Path(entry.path)
                for entry in entries
                if entry.is_dir() and not entry.name.startswith(".")
            )
    except OSError:
        return []  # unreadable: nothing in it could be served


def _looks_like_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() or any(folder.glob("*.safetensors"))


def _examine(model_id: str, path: Path, *, raise_to_fp32: bool) -> FoundModel:
    model_type = ""
    weights_bytes = 0
    problem = ""
    try:
        config = read_json_object(path / "config.json")
        model_type = str(config.get("model_type", ""))
        weights_bytes = _weights_bytes(_weight_files(path), raise_to_fp32=raise_to_fp32)
        problem = _why_not_servable(path, model_type, config)
    except (ValueError, OSError) as error:
        problem = str(error)
    return FoundModel(
        model_id=model_id,
        path=path,
        model_type=model_type,
        weights_bytes=weights_bytes,
        problem=problem,
    )


def _why_not_servable(path: Path, model_type: str, config: dict[str, object]) -> str:
    if not (path / "config.json").is_file():
        return "config.json is missing"
    if not model_type:
        return "config.json names no model_type"
    if "model_file" in config:
        return "it brings its own code (model_file), which is never executed"
    if not is_supported(model_type):
        return f"mlx-lm has no model type {model_type!r}"
    return ""


def _weight_files(path: Path) -> list[Path]:
    """The shards mlx-lm will load.

    Raises:
        ValueError: there are none, or the index names one that is missing.
    """
    files = sorted(path.glob("model*.safetensors"))
    _require_indexed_files(path, {file.name for file in files})
    if files:
        return files
    if any(path.glob("*.gguf")):
        raise ValueError("it has GGUF files only; convert it with mlx_lm.convert")
    if any(path.glob("*.bin")):
        raise ValueError("it has .bin weights only; convert it with mlx_lm.convert")
    if (path / "adapter_config.json").is_file():
        raise ValueError("it is a LoRA adapter, not a model")
    raise ValueError("it has no model*.safetensors")


def _require_indexed_files(path: Path, present: set[str]) -> None:
    weight_map = read_json_object(path / "model.safetensors.index.json").get("weight_map")
    if not isinstance(weight_map, dict):
        return
    named = set(cast("dict[str, str]", weight_map).values())
    if missing := sorted(str(name) for name in named if name not in present):
        raise ValueError(f"{len(missing)} shard(s) are missing: {', '.join(missing[:3])}")


def _weights_bytes(files: Iterable[Path], *, raise_to_fp32: bool) -> int:
    return sum(
        tensor.held_bytes(raise_to_fp32=raise_to_fp32)
        for file in files
        for tensor in read_tensors(file)
    )
