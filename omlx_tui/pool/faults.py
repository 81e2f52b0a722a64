"""Why a model's folder can't be served, and how large it will be if it can.

Reads configuration and headers only: nothing found is ever executed or unpickled. Every reason is
one printable line, and says what to do where something can be done.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from omlx_tui.engines.model_config import read_json_object
from omlx_tui.engines.model_types import is_supported
from omlx_tui.pool.layouts import Folder, Place, printable
from omlx_tui.pool.safetensors import DamagedFileError, weights_bytes

_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_TOKENIZERS = re.compile(
    r"tokenizer\.json|tokenizer\.model(\.v\d+)?|tekken\.json|vocab\.(json|txt)|.+\.tiktoken"
    r"|tiktoken\.model|spiece\.model|sentencepiece\.bpe\.model"
)
_SHARD_OF = re.compile(r"(model.*-)(\d+)-of-(\d+)\.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")

# Far above real ones (the largest vocabularies in a config take a few MB), far below harm.
_MAX_JSON_BYTES = 50_000_000
_MAX_TYPE_CHARS = 64

# What well-known types that mlx-lm lacks are for; it runs text generators.
_KINDS = {
    "an embedding or classification model": (
        "albert bert camembert deberta deberta-v2 distilbert electra ernie_m modernbert mpnet "
        "nomic_bert roberta xlm-roberta xlnet"
    ),
    "an audio model": (
        "bark csm encodec hubert moonshine musicgen parakeet seamless_m4t speecht5 vits wav2vec2 "
        "wav2vec2-bert wavlm whisper"
    ),
    "a vision model": (
        "beit blip clip convnext convnextv2 deit detr dinov2 dinov3_vit resnet sam sam2 segformer "
        "siglip siglip2 swin vit yolos"
    ),
    "an encoder-decoder model": "bart longt5 m2m_100 marian mbart mt5 pegasus t5 umt5",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What a folder's files say.

    Attributes:
        weights_bytes: as the weights will be held; 0 if their headers can't be read.
        problem: why it can't be served, empty if it can.
    """

    model_type: str = ""
    weights_bytes: int = 0
    problem: str = ""


# mlx-lm's modules don't change while it is installed, and looking for them is slow.
_mlx_lm_runs = lru_cache(maxsize=1024)(is_supported)


def examine(place: Place, *, raise_to_fp32: bool) -> Examination:
    """Read a model's configuration and headers.

    The first fault found is reported, in an order in which mending the first is worth while: no
    download helps a type that mlx-lm can't run.

    Raises:
        OSError: a file can't be read, which is no property of its content and may pass.
    """
    folder = place.folder
    model_type = ""
    size_bytes = 0
    problem = _unsupported_format(folder)
    try:
        config = _read_json(folder, _CONFIG)
        model_type = printable(str(config.get("model_type") or ""), most_chars=_MAX_TYPE_CHARS)
        problem = problem or _weights_problem(place) or _type_problem(folder, config)
        size_bytes = _held_bytes(place, raise_to_fp32=raise_to_fp32)
        problem = problem or _tokenizer_problem(place)
    except DamagedFileError as error:
        problem = problem or f"{error}; {_how_to_fetch(place)}"
    except ValueError as error:
        problem = problem or str(error)
    return Examination(
        model_type=model_type,
        weights_bytes=size_bytes,
        problem=printable(problem),
    )


def _read_json(folder: Folder, name: str) -> dict[str, object]:
    """A file's object, empty if there is no such file. Pipes and huge files are not opened.

    Raises:
        DamagedFileError: it is empty.
        ValueError: it is no JSON object.
    """
    if name not in folder.files:
        return {}
    size_bytes = folder.files[name].stat().st_size
    if size_bytes == 0:
        raise DamagedFileError(f"{name} is empty")
    if size_bytes > _MAX_JSON_BYTES:
        raise ValueError(f"{name} is too large to be one ({size_bytes} bytes)")
    return read_json_object(folder.path / name)


def _how_to_fetch(place: Place) -> str:
    if place.hub_id:
        return f"run: hf download {shlex.quote(place.hub_id)}"
    return "wait if it is still being copied, else fetch it again"


# What the folder is


def _unsupported_format(folder: Folder) -> str:
    """Why it is no model in mlx-lm's format at all, whatever its configuration says."""
    if _model_files(folder):
        return ""
    if "adapter_config.json" in folder.files:
        return f"it is a LoRA adapter{_base_of(folder)}; merge it into its model with mlx_lm.fuse"
    if "model_index.json" in folder.files:
        return "it is an image pipeline (diffusers), and mlx-lm runs only text generators"
    return ""


def _base_of(folder: Folder) -> str:
    try:
        adapter = _read_json(folder, "adapter_config.json")
    except ValueError:
        return ""
    base = adapter.get("base_model_name_or_path") or adapter.get("model")
    return f" for {printable(base, most_chars=100)}" if isinstance(base, str) else ""


def _type_problem(folder: Folder, config: Mapping[str, object]) -> str:
    if _CONFIG not in folder.files:
        return f"{_CONFIG} is missing; fetch it from where the weights come from"
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        return f"{_CONFIG} names no model_type"
    if config.get("model_file") is not None:
        return "it brings its own code (model_file), which is never executed"
    if len(model_type) <= _MAX_TYPE_CHARS and _mlx_lm_runs(model_type):
        return ""
    shown = printable(model_type, most_chars=_MAX_TYPE_CHARS)
    kind = _KIND_OF.get(model_type) or _kind_by_parts(config)
    if kind:
        return f"mlx-lm has no model type {shown!r}: it is {kind}"
    return f"mlx-lm has no model type {shown!r}; a newer mlx-lm may"


def _kind_by_parts(config: Mapping[str, object]) -> str:
    if "vision_config" in config:
        return "a vision-language model"
    return "an audio model" if "audio_config" in config else ""


# Its weights


def _model_files(folder: Folder) -> list[str]:
    """The files that mlx-lm loads: all of this pattern, whatever an index says."""
    return sorted(
        name for name in folder.files if name.startswith("model") and name.endswith(".safetensors")
    )


def _weights_problem(place: Place) -> str:
    """Which weights are missing, or in a format that mlx-lm can't read."""
    folder = place.folder
    if dangling := sorted(name for name in folder.dangling if _is_needed(name)):
        return _not_downloaded(place, dangling[0])
    present = set(_model_files(folder))
    if missing := sorted((_indexed_files(folder) | _numbered_files(present)) - present):
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        return f"{len(missing)} shard(s) are missing: {shown}; {_how_to_fetch(place)}"
    return "" if present else _no_weights(place)


def _is_needed(name: str) -> bool:
    return (
        name in (_CONFIG, _INDEX)
        or name.endswith((".safetensors", ".gguf", ".bin"))
        or _TOKENIZERS.fullmatch(name) is not None
    )


def _not_downloaded(place: Place, name: str) -> str:
    if place.hub_id:
        return f"{name} is not fully downloaded; {_how_to_fetch(place)}"
    return (
        f"{name} is a link to a missing file: not fully downloaded, or its disk is not mounted; "
        "mount it or fetch it again"
    )


def _weight_map(folder: Folder) -> dict[str, str]:
    """Which file holds which tensor, as the index says; empty without one."""
    weight_map = _read_json(folder, _INDEX).get("weight_map")
    if not isinstance(weight_map, dict):
        return {}
    return {tensor: str(file) for tensor, file in cast("dict[str, object]", weight_map).items()}


def _indexed_files(folder: Folder) -> set[str]:
    return set(_weight_map(folder).values())


def _numbered_files(present: set[str]) -> set[str]:
    """What the shards' own names promise: a copy brings the index last."""
    promised: set[str] = set()
    for name in present:
        if match := _SHARD_OF.fullmatch(name):
            start, number, count = match.groups()
            if int(count) > 10_000:  # no model's: don't list what a typing error promises
                continue
            promised |= {
                f"{start}{i:0{len(number)}}-of-{count}.safetensors"
                for i in range(1, int(count) + 1)
            }
    return promised


def _no_weights(place: Place) -> str:
    files = place.folder.files
    if partial := place.folder.partial or _unfinished_downloads(place.folder):
        return f"its download is not finished ({partial[0]}); {_how_to_fetch(place)}"
    if any(name.endswith(".gguf") for name in files):
        return "it has GGUF files only, which mlx-lm can't read; fetch a safetensors version"
    for suffix in _PICKLES:
        if any(name.endswith(suffix) for name in files):
            return (
                f"it has {suffix} weights only (pickles, which are never opened); "
                "fetch a safetensors version"
            )
    if others := sorted(name for name in files if name.endswith(".safetensors")):
        return f"it has no model*.safetensors, all that mlx-lm loads (but {others[0]})"
    if any(name.endswith(".npz") for name in files):
        return "it has .npz weights only, an old MLX format; fetch a safetensors version"
    if place.hub_id:
        return f"it is not fully downloaded: no weights; {_how_to_fetch(place)}"
    return f"it has no model*.safetensors; {_how_to_fetch(place)}"


def _unfinished_downloads(folder: Folder) -> list[str]:
    """Where ``hf download --local-dir`` keeps what is under way."""
    downloads = folder.path / ".cache" / "huggingface" / "download"
    return sorted(path.name for path in downloads.glob("*.incomplete"))


def _held_bytes(place: Place, *, raise_to_fp32: bool) -> int:
    folder = place.folder
    files = [folder.path / name for name in _model_files(folder)]
    if not files:
        return 0
    return weights_bytes(files, _weight_map(folder), raise_to_fp32=raise_to_fp32)


# Its tokenizer


def _tokenizer_problem(place: Place) -> str:
    files = place.folder.files
    names = sorted(name for name in files if _TOKENIZERS.fullmatch(name))
    if not names:
        return f"it has no tokenizer (tokenizer.json or the like); {_how_to_fetch(place)}"
    if empty := [name for name in names if files[name].stat().st_size == 0]:
        return f"{empty[0]} is empty; {_how_to_fetch(place)}"
    return ""
