"""What is said of a model: its size, why it can't be served, and when it has changed."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omlx_tui.pool import EnginePool, ModelNotFoundError, faults
from omlx_tui.pool.discovery import (
    Changes,
    Discovery,
    ExaminationCache,
    FoundModel,
    diff,
    find_all,
    find_models,
)
from omlx_tui.pool.events import ModelsDiscovered
from omlx_tui.pool.safetensors import weights_bytes
from tests.fakes import FakeBackend
from tests.model_folders import write_model, write_safetensors

EXECUTED = "raise SystemExit('executed')"


def find(root: Path) -> dict[str, str]:
    """Ids and problems of what is found."""
    return {model.model_id: model.problem for model in find_models(root, raise_to_fp32=False)}


def test_sizes_come_from_the_headers_as_the_weights_will_be_held(tmp_path: Path) -> None:
    """All shards together; half precision counts double where it is raised."""
    folder = write_model(tmp_path / "m", weights_bytes=800)
    write_safetensors(folder / "model-2.safetensors", {"h": ("BF16", [50], 100)})
    write_safetensors(folder / "other.safetensors", {"x": ("F32", [100], 400)})
    sizes = [
        find_models(tmp_path, raise_to_fp32=raised)[0].weights_bytes for raised in (False, True)
    ]
    assert sizes == [900, 1000]


def test_a_tensor_in_two_shards_counts_once(tmp_path: Path) -> None:
    """As the index says it; an index may name no file that mlx-lm does not load."""
    folder = write_model(tmp_path / "m", weights_bytes=800)
    write_safetensors(
        folder / "model-2.safetensors", {"w": ("F32", [50], 200), "v": ("F32", [1], 4)}
    )
    assert find_models(tmp_path, raise_to_fp32=False)[0].weights_bytes == 804
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "model-2.safetensors"}}))
    assert find_models(tmp_path, raise_to_fp32=False)[0].weights_bytes == 204


# Faults


def edit_config(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"} | changes))

    return edit


def replace(name: str, content: bytes | str | None) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return edit


def only(*names: str) -> Callable[[Path], None]:
    """A folder with a configuration, and files of these names for weights."""

    def edit(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"\x80\x04")

    return edit


def adapter(folder: Path) -> None:
    """What mlx_lm.lora leaves behind."""
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).unlink()
    (folder / "adapter_config.json").write_text('{"model": "org/base"}')
    write_safetensors(folder / "adapters.safetensors", {"a": ("F32", [1], 4)})


def pipeline(folder: Path) -> None:
    """A diffusers folder: its parts look like models, and are none of their own."""
    (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()
    (folder / "model_index.json").write_text("{}")
    write_model(folder / "unet")


def own_code(folder: Path) -> None:
    edit_config(model_file="evil.py")(folder)
    (folder / "evil.py").write_text(EXECUTED)


def missing_shard(folder: Path) -> None:
    index = {"weight_map": {"w": "model.safetensors", "v": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def copied_shards(folder: Path) -> None:
    """Two of three shards, and the index not there yet."""
    (folder / "model.safetensors").unlink()
    for number in (1, 2):
        write_safetensors(
            folder / f"model-0000{number}-of-00003.safetensors", {str(number): ("U8", [1], 1)}
        )


def being_copied(folder: Path) -> None:
    """The header has arrived, of the data a part."""
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 7)


def dangling(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/nowhere/model.safetensors")


def pipe(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return edit


FAULTS: list[tuple[str, Callable[[Path], None], str]] = [
    ("gguf", only("model-q4.gguf"), "it has GGUF files only, which mlx-lm can't read; fetch"),
    ("bin", only("pytorch_model.bin"), "it has .bin weights only (pickles, which are never op"),
    ("pth", only("consolidated.00.pth"), "it has .pth weights only (pickles"),
    ("npz", only("weights.npz"), "it has .npz weights only, an old MLX format"),
    ("other name", only("weights.00.safetensors"), "it has no model*.safetensors, all that mlx"),
    ("no weights", only(), "it has no model*.safetensors; wait if it is still being copied"),
    ("unfinished", only("model.safetensors.incomplete"), "its download is not finished (model."),
    ("rsync", only(".model.safetensors.Xy12Ab"), "its download is not finished (.model."),
    (
        "unfinished local-dir",
        only(".cache/huggingface/download/abc.incomplete"),
        "its download is not finished (abc.incomplete)",
    ),
    ("adapter", adapter, "it is a LoRA adapter for org/base; merge it into its model with mlx_lm"),
    ("pipeline", pipeline, "it is an image pipeline"),
    ("bad config", replace("config.json", "{"), "config.json is not valid JSON"),
    ("list config", replace("config.json", "[]"), "config.json is not a JSON object"),
    ("empty config", replace("config.json", ""), "config.json is empty; wait if it is still"),
    ("binary config", replace("config.json", b"\xff\xfe"), "config.json is not valid JSON"),
    ("endless number", replace("config.json", '{"a": ' + "9" * 5000 + "}"), "Exceeds the limit"),
    ("no config", replace("config.json", None), "config.json is missing; fetch it from where"),
    ("pipe config", pipe("config.json"), "config.json is missing"),
    ("no type", edit_config(model_type=None), "config.json names no model_type"),
    ("odd type", edit_config(model_type={"a": 1}), "config.json names no model_type"),
    ("path type", edit_config(model_type="../../etc"), "mlx-lm has no model type '../../etc'; a n"),
    ("long type", edit_config(model_type="a" * 5000), "mlx-lm has no model type 'aaa"),
    ("unprintable type", edit_config(model_type="\ud800\n"), "mlx-lm has no model type"),
    ("own code", own_code, "it brings its own code (model_file), which is never executed"),
    ("embedding", edit_config(model_type="bert"), "'bert': it is an embedding or classification"),
    ("audio", edit_config(model_type="whisper"), "'whisper': it is an audio model"),
    ("vision", edit_config(model_type="clip"), "'clip': it is a vision model"),
    ("t5", edit_config(model_type="t5"), "'t5': it is an encoder-decoder model"),
    ("vlm", edit_config(model_type="new_vl", vision_config={}), "it is a vision-language model"),
    ("missing shard", missing_shard, "1 shard(s) are missing: model-2.safetensors; wait if"),
    ("copied shards", copied_shards, "1 shard(s) are missing: model-00003-of-00003.safetensors"),
    (
        "odd index",
        replace("model.safetensors.index.json", '{"weight_map": {"w": ["model"]}}'),
        "1 shard(s) are missing: ['model']",
    ),
    ("broken index", replace("model.safetensors.index.json", "{"), "index.json is not valid JSON"),
    ("truncated", replace("model.safetensors", b"\1\2"), "model.safetensors is truncated; wait"),
    ("being copied", being_copied, "is truncated: 7 bytes of data are missing; wait if it is st"),
    ("zero bytes", replace("model.safetensors", b""), "model.safetensors is truncated: it is emp"),
    ("preallocated", replace("model.safetensors", b"\0" * 99), "has a broken safetensors header;"),
    (
        "no tensors",
        replace("model.safetensors", struct.pack("<Q", 2) + b"{}"),
        "its safetensors files hold no tensors; wait",
    ),
    (
        "git lfs",
        replace("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:1"),
        "model.safetensors is a Git LFS pointer; run git lfs pull",
    ),
    ("dangling", dangling, "model.safetensors is a link to a missing file: not fully downloaded"),
    ("pipe weights", pipe("model.safetensors"), "it has no model*.safetensors"),
    ("no tokenizer", replace("tokenizer.json", None), "it has no tokenizer (tokenizer.json or th"),
    ("empty tokenizer", replace("tokenizer.json", ""), "tokenizer.json is empty; wait if"),
]


@pytest.mark.parametrize(
    ("spoil", "reason"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_what_cannot_be_served_is_listed_with_its_reason(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    """One printable line, never hidden, never executed; the models beside it are not disturbed."""
    spoil(write_model(tmp_path / "bad"))
    write_model(tmp_path / "good")
    found = find(tmp_path)
    assert set(found) == {"bad", "good"}
    assert found["good"] == ""
    assert reason in found["bad"]
    assert found["bad"].isprintable()
    assert len(found["bad"]) <= 600


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_that_may_not_be_read_is_said_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The reason names it; the next look reads again although no file has changed."""
    write_model(tmp_path / "m")
    cache = ExaminationCache()
    open_path = Path.open

    def guarded(path: Path, *args: object, **options: object) -> object:
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return open_path(path, *args, **options)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", guarded)
        found = find_all([tmp_path], raise_to_fp32=False, cache=cache).models["m"]
    assert found.problem == (
        f"{name} can't be read (Permission denied); check its disk and its permissions"
    )
    assert find_all([tmp_path], raise_to_fp32=False, cache=cache).models["m"].problem == ""


@pytest.mark.parametrize(
    "harmless",
    [
        edit_config(auto_map={"AutoModelForCausalLM": "modeling_x.X"}),
        replace("modeling_x.py", EXECUTED),
        replace("training_args.bin", b"\x80\x04"),
        replace("adapter_config.json", "{}"),
        replace("model.safetensors.part", b""),
        replace("model-q4.gguf", b"GGUF"),
        replace("vocab.json", "{}"),
    ],
)
def test_what_mlx_lm_does_not_look_at_is_no_fault(
    tmp_path: Path, harmless: Callable[[Path], None]
) -> None:
    """Custom code beside a type that mlx-lm has, leftovers, other formats beside safetensors."""
    harmless(write_model(tmp_path / "m"))
    assert find(tmp_path) == {"m": ""}


@pytest.mark.parametrize(
    "name", ["tokenizer.model", "tokenizer.model.v3", "tekken.json", "vocab.txt", "qwen.tiktoken"]
)
def test_every_kind_of_tokenizer_is_one(tmp_path: Path, name: str) -> None:
    """A fast tokenizer's file is not the only one."""
    folder = write_model(tmp_path / "m")
    (folder / "tokenizer.json").rename(folder / name)
    assert find(tmp_path) == {"m": ""}


def test_discovery_executes_and_imports_nothing(tmp_path: Path) -> None:
    """No model's code, no pickle, no MLX: in a process of its own, with every fault in place."""
    for name, spoil, _ in FAULTS:
        spoil(write_model(tmp_path / name))
        replace("modeling_x.py", EXECUTED)(tmp_path / name)
    program = (
        "import sys; from pathlib import Path; from omlx_tui.pool.discovery import find_models; "
        f"found = find_models(Path({str(tmp_path)!r}), raise_to_fp32=False); "
        "print(len(found), [m for m in ('mlx', 'mlx_lm', 'pickle5', 'torch') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == f"{len(FAULTS)} []"


# What has been read, and what has changed


def test_headers_are_read_once_per_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking again reads nothing; a change reads that model only."""
    read: list[str] = []

    def counted(files: list[Path], *args: object, **options: bool) -> int:
        read.append(files[0].parent.name)
        return weights_bytes(files, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(faults, "weights_bytes", counted)
    for name in "ab":
        write_model(tmp_path / name)
    cache = ExaminationCache()
    first = find_all([tmp_path], raise_to_fp32=False, cache=cache)
    assert find_all([tmp_path], raise_to_fp32=False, cache=cache) == first
    assert read == ["a", "b"]
    write_safetensors(tmp_path / "a" / "model-2.safetensors", {"x": ("F32", [1], 4)})
    third = find_all([tmp_path], raise_to_fp32=False, cache=cache)
    assert read == ["a", "b", "a"]
    assert third.models["a"].weights_bytes == 1004
    assert third.models["a"].fingerprint != first.models["a"].fingerprint
    assert third.models["b"] == first.models["b"]
    find_all([tmp_path], raise_to_fp32=True, cache=cache)
    assert read[3:] == ["a", "b"]


def a_model(model_id: str, fingerprint: str = "1") -> FoundModel:
    return FoundModel(
        model_id=model_id,
        path=Path("/", model_id),
        model_type="llama",
        weights_bytes=1,
        fingerprint=fingerprint,
    )


def discovered(*models: FoundModel) -> Discovery:
    return Discovery({model.model_id: model for model in models})


def test_a_difference_is_what_came_went_and_changed() -> None:
    """Each model in one of the three, or in none; no difference is false."""
    old = discovered(a_model("gone"), a_model("kept"), a_model("touched"))
    new = discovered(a_model("kept"), a_model("new"), a_model("touched", "2"))
    changes = diff(old, new)
    assert changes == Changes(
        added=(a_model("new"),), removed=(a_model("gone"),), changed=(a_model("touched", "2"),)
    )
    assert changes
    assert not diff(new, new)


def test_a_mended_model_is_a_change_without_its_problem(tmp_path: Path) -> None:
    """What a failed model waits for: its files differ, and so does the verdict."""
    folder = write_model(tmp_path / "m")
    being_copied(folder)
    before = find_all([tmp_path], raise_to_fp32=False)
    write_safetensors(folder / "model.safetensors", {"w": ("F32", [250], 1000)})
    (mended,) = diff(before, find_all([tmp_path], raise_to_fp32=False)).changed
    assert re.search("truncated", before.models["m"].problem)
    assert (mended.problem, mended.weights_bytes) == ("", 1000)


def test_a_missing_root_is_an_error_that_says_so(tmp_path: Path) -> None:
    """No folder, or a file in its place."""
    with pytest.raises(FileNotFoundError, match="no folder"):
        find(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        find(tmp_path / "file")


def test_the_pool_keeps_known_entries_and_pins_by_name(tmp_path: Path) -> None:
    """Discovering again adds what is new; the reference's ``pinned_models`` work."""
    write_model(tmp_path / "a")
    pool = EnginePool(10_000, backend=FakeBackend())
    (entry,) = pool.discover_models(str(tmp_path), pinned_models=["a"])
    assert entry.is_pinned
    write_model(tmp_path / "b")
    found = pool.discover_models(tmp_path)
    assert [e.model_id for e in found] == ["a", "b"]
    assert found[0] is entry
    last = pool.events.after(0)[-1]
    assert isinstance(last, ModelsDiscovered)
    assert (last.found, last.servable) == (2, 2)
    with pytest.raises(ModelNotFoundError):
        pool.discover_models(tmp_path, pinned_models=["c"])
