"""What is found in a folder, under which id, and why something can't be served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omlx_tui.pool import EnginePool, ModelNotFoundError
from omlx_tui.pool.discovery import find_models
from omlx_tui.pool.events import ModelsDiscovered
from tests.fakes import FakeBackend
from tests.model_folders import write_model, write_safetensors


def find(root: Path) -> dict[str, str]:
    """Ids and problems of what is found."""
    return {model.model_id: model.problem for model in find_models(root, raise_to_fp32=False)}


def test_folders_and_organisations_are_found(tmp_path: Path) -> None:
    """``name`` and ``org/name``; hidden folders and deeper ones are not models of this root."""
    write_model(tmp_path / "flat")
    write_model(tmp_path / "org" / "nested")
    write_model(tmp_path / ".hidden" / "x")
    write_model(tmp_path / "a" / "b" / "too-deep")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not a model")
    assert find(tmp_path) == {"flat": "", "org/nested": ""}


def test_a_root_may_be_a_model_itself(tmp_path: Path) -> None:
    """``--models path/to/one`` serves that one, by its own name."""
    write_model(tmp_path / "only")
    assert find(tmp_path / "only") == {"only": ""}


def test_a_symlinked_model_is_found_and_a_loop_ends(tmp_path: Path) -> None:
    """Links are followed; a link to its own parent does no harm."""
    write_model(tmp_path / "elsewhere" / "real")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere" / "real")
    (root / "loop").symlink_to(root)
    found = find(root)
    assert found["linked"] == ""
    assert set(found) == {"linked", "loop/linked"}


def test_sizes_come_from_the_headers_as_the_weights_will_be_held(tmp_path: Path) -> None:
    """All shards together; half precision counts double where it is raised."""
    folder = write_model(tmp_path / "m", weights_bytes=800)
    write_safetensors(folder / "model-2.safetensors", {"h": ("BF16", [50], 100)})
    write_safetensors(folder / "other.safetensors", {"x": ("F32", [100], 400)})
    sizes = [
        find_models(tmp_path, raise_to_fp32=raised)[0].weights_bytes for raised in (False, True)
    ]
    assert sizes == [900, 1000]


def broken(folder: Path, fault: str) -> None:
    """Make a model folder with one fault."""
    folder.mkdir()
    config = folder / "config.json"
    config.write_text(json.dumps({"model_type": "llama"}))
    match fault:
        case "gguf":
            (folder / "weights.gguf").write_bytes(b"GGUF")
        case "bin":
            (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
        case "adapter":
            (folder / "adapter_config.json").write_text("{}")
        case "nothing":
            pass
        case "bad config":
            config.write_text("{")
        case "list config":
            config.write_text("[]")
        case "no type":
            config.write_text("{}")
        case "unknown type":
            config.write_text('{"model_type": "../../etc"}')
        case "own code":
            config.write_text('{"model_type": "llama", "model_file": "evil.py"}')
            (folder / "evil.py").write_text("raise SystemExit('executed')")
        case "missing shard":
            index = {"weight_map": {"w": "model.safetensors", "v": "model-2.safetensors"}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        case "truncated":
            (folder / "model.safetensors").write_bytes(b"\1\2")
        case "no config":
            config.unlink()
    if fault in ("no type", "unknown type", "own code", "missing shard", "no config"):
        write_safetensors(folder / "model.safetensors", {"w": ("F32", [1], 4)})


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("gguf", "GGUF"),
        ("bin", r"\.bin"),
        ("adapter", "LoRA adapter"),
        ("nothing", "no model"),
        ("bad config", "config.json is not valid JSON"),
        ("list config", "config.json is not a JSON object"),
        ("no type", "names no model_type"),
        ("unknown type", "no model type"),
        ("own code", "never executed"),
        ("missing shard", "1 shard.* missing: model-2.safetensors"),
        ("truncated", "model.safetensors is truncated"),
        ("no config", "config.json is missing"),
    ],
)
def test_what_cannot_be_served_is_listed_with_its_reason(
    tmp_path: Path, fault: str, reason: str
) -> None:
    """Never hidden, never executed, and the models beside it are not disturbed."""
    broken(tmp_path / "bad", fault)
    write_model(tmp_path / "good")
    found = {model.model_id: model for model in find_models(tmp_path, raise_to_fp32=False)}
    assert found["good"].problem == ""
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found["bad"].problem)


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
