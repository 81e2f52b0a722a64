"""Where models are found: the layouts that tools leave behind, links, several roots."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from omlx_tui.pool.discovery import Discovery, find_all, find_models
from omlx_tui.pool.layouts import list_folder, printable
from tests.model_folders import write_hub_model, write_model, write_safetensors


def find(root: Path) -> dict[str, str]:
    """Ids and problems of what one root holds."""
    return {model.model_id: model.problem for model in find_models(root, raise_to_fp32=False)}


def look(*roots: Path) -> Discovery:
    return find_all(roots, raise_to_fp32=False)


# One root


def test_folders_and_organisations_are_found(tmp_path: Path) -> None:
    """``name`` and ``org/name`` (LM Studio's layout); hidden and deeper folders are none."""
    write_model(tmp_path / "flat")
    write_model(tmp_path / "org" / "nested")
    write_model(tmp_path / ".hidden" / "x")
    write_model(tmp_path / "a" / "b" / "too-deep")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not a model")
    assert find(tmp_path) == {"flat": "", "org/nested": ""}


def test_a_root_may_be_a_model_itself(tmp_path: Path) -> None:
    """``--models path/to/one`` serves that one, by its own name, and looks no deeper."""
    write_model(tmp_path / "only")
    write_model(tmp_path / "only" / "checkpoint")
    assert find(tmp_path / "only") == {"only": ""}


def test_gguf_folders_of_lm_studio_are_listed(tmp_path: Path) -> None:
    """They have no config.json; nothing is hidden for that."""
    folder = tmp_path / "org" / "Model-GGUF"
    folder.mkdir(parents=True)
    (folder / "model.Q4_K_M.gguf").write_bytes(b"GGUF")
    assert "GGUF" in find(tmp_path)["org/Model-GGUF"]


@pytest.mark.parametrize("stray", ["stray.gguf", "model.safetensors", "config.json"])
@pytest.mark.parametrize("inside", ["", "org"])
def test_a_stray_file_does_not_hide_the_models_beside_it(
    tmp_path: Path, stray: str, inside: str
) -> None:
    """A root or an organisation with loose weights or some other config.json stays a folder."""
    write_model(tmp_path / "org" / "good")
    (tmp_path / inside / stray).write_text("{}")
    found = find(tmp_path)
    assert found.pop("org/good") == ""
    assert all(found.values())
    assert bool(found) is (stray != "config.json")


# The hub's cache


def test_a_hub_cache_is_found_by_either_folder(tmp_path: Path) -> None:
    """``…/hub`` and the folder around it give the same ids, through links to blobs."""
    snapshot = write_hub_model(tmp_path / "hub", "org/name")
    write_hub_model(tmp_path / "hub", "gpt2")
    (tmp_path / "hub" / "datasets--org--data" / "snapshots" / "aaa").mkdir(parents=True)
    (tmp_path / "hub" / ".locks" / "models--org--name").mkdir(parents=True)
    for root in (tmp_path, tmp_path / "hub"):
        assert find(root) == {"org/name": "", "gpt2": ""}
    (model,) = (m for m in find_models(tmp_path, raise_to_fp32=False) if m.model_id == "org/name")
    assert (model.path, model.weights_bytes) == (snapshot, 1000)


def test_one_repository_or_snapshot_may_be_the_root(tmp_path: Path) -> None:
    """Its id is the repository's, not a commit hash."""
    snapshot = write_hub_model(tmp_path, "org/name")
    assert find(snapshot) == {"org/name": ""}
    assert find(snapshot.parent.parent) == {"org/name": ""}


def test_main_decides_which_revision_else_the_newest(tmp_path: Path) -> None:
    """Also when ``main`` names a revision that is not there."""
    old = write_hub_model(tmp_path, "org/name", revision="zzz-old", is_main=False)
    new = write_hub_model(tmp_path, "org/name", revision="aaa-new", is_main=False)
    os.utime(old, (1000, 1000))
    os.utime(new, (2000, 2000))

    def path_found() -> Path:
        return find_models(tmp_path, raise_to_fp32=False)[0].path

    assert path_found() == new
    refs = new.parent.parent / "refs"
    refs.mkdir()
    (refs / "main").write_text("zzz-old\n")
    assert path_found() == old
    for nonsense in (b"gone", b"../../..", b"", b"\xff\xfe"):
        (refs / "main").write_bytes(nonsense)
        assert path_found() == new


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_blob_that_was_not_downloaded_is_said(tmp_path: Path, missing: str) -> None:
    """The snapshot's link leads nowhere: the reason names the file and the command."""
    snapshot = write_hub_model(tmp_path, "org/name")
    (snapshot / missing).resolve().unlink()
    problem = find(tmp_path)["org/name"]
    assert problem == f"{missing} is not fully downloaded; run: hf download org/name"


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_download_that_has_just_begun_is_listed(tmp_path: Path, has_snapshot: bool) -> None:
    """Only unfinished blobs yet, or a configuration and no weights."""
    snapshot = write_hub_model(tmp_path, "org/name")
    if has_snapshot:
        (snapshot / "model.safetensors").unlink()
    else:
        shutil.rmtree(snapshot)
    blobs = snapshot.parent.parent / "blobs"
    (blobs / "e3b0c442.incomplete").write_bytes(b"\0")
    assert find(tmp_path)["org/name"] == (
        "it is not fully downloaded: no weights; run: hf download org/name"
    )


def test_advice_is_safe_to_paste(tmp_path: Path) -> None:
    """A folder's name is somebody else's text: it is quoted where it is part of a command."""
    (tmp_path / "models--a--b; rm -rf ~" / "blobs").mkdir(parents=True)
    assert find(tmp_path)["a/b; rm -rf ~"].endswith("hf download 'a/b; rm -rf ~'")


# Links


def test_a_symlinked_model_is_found_and_a_loop_ends(tmp_path: Path) -> None:
    """Links are followed; one to its own parent, or to itself, does no harm."""
    write_model(tmp_path / "elsewhere" / "real")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere" / "real")
    (root / "loop").symlink_to(root)
    (root / "self").symlink_to("self")
    assert find(root) == {"linked": ""}


def test_a_folder_wins_over_links_to_it(tmp_path: Path) -> None:
    """One model under the id of the real folder, whatever the names' order."""
    write_model(tmp_path / "z" / "real")
    (tmp_path / "a-link").symlink_to(tmp_path / "z" / "real")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "link").symlink_to(tmp_path / "z" / "real")
    assert find(tmp_path) == {"z/real": ""}


def test_a_link_to_a_disk_that_is_away_is_a_warning(tmp_path: Path) -> None:
    """The model is not hidden without a word."""
    write_model(tmp_path / "good")
    (tmp_path / "far").symlink_to(tmp_path / "not-mounted" / "far")
    discovery = look(tmp_path)
    assert list(discovery.models) == ["good"]
    (warning,) = discovery.warnings
    assert (warning.path.name, "mounted" in warning.reason) == ("far", True)


# Several roots


def test_two_models_of_one_name_keep_distinct_ids(tmp_path: Path) -> None:
    """The first root's keeps the name; the others take as much of their path as they need."""
    for root in ("one/models", "two/models", "three"):
        write_model(tmp_path / root / "same")
    write_model(tmp_path / "two" / "models" / "org" / "x")
    write_hub_model(tmp_path / "hub", "org/x")
    roots = [tmp_path / name for name in ("one/models", "two/models", "three", "hub")]
    found = look(*roots).models
    assert {model_id: str(m.path.relative_to(tmp_path)) for model_id, m in found.items()} == {
        "same": "one/models/same",
        "models/same": "two/models/same",
        "three/same": "three/same",
        "org/x": "two/models/org/x",
        "hub/org/x": "hub/models--org--x/snapshots/aaa",
    }
    assert list(found) == sorted(found)
    assert look(*reversed(roots)).models["same"].path == tmp_path / "three" / "same"
    assert look(tmp_path / "one/models", tmp_path / "two/models/same").models.keys() == {
        "same",
        "models/same",
    }


def test_one_folder_found_twice_is_one_model(tmp_path: Path) -> None:
    """Roots that lie in one another, are given twice or are links to one another."""
    write_model(tmp_path / "models" / "org" / "name")
    (tmp_path / "alias").symlink_to(tmp_path / "models")
    roots = [tmp_path / "models", tmp_path / "models", tmp_path / "models/org", tmp_path / "alias"]
    discovery = look(*roots)
    assert list(discovery.models) == ["org/name"]
    assert discovery.warnings == ()


def test_a_root_that_is_away_is_a_warning_and_the_others_are_found(tmp_path: Path) -> None:
    """Missing, a file, empty (a mount point without its disk), a link to itself."""
    write_model(tmp_path / "good" / "m")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    roots = [tmp_path / name for name in ("gone", "file", "empty", "loop", "good")]
    discovery = look(*roots)
    assert list(discovery.models) == ["m"]
    assert [warning.path for warning in discovery.warnings] == roots[:-1]
    assert all(printable(warning.reason) == warning.reason for warning in discovery.warnings)


def test_a_folder_that_may_not_be_listed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold models; the ones beside it are found."""
    write_model(tmp_path / "good")
    write_model(tmp_path / "locked")
    scandir = os.scandir

    def guarded(path: Path) -> object:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    discovery = look(tmp_path)
    assert list(discovery.models) == ["good"]
    assert "locked can't be read (Permission denied)" in discovery.warnings[0].reason


# Names


def test_ids_are_text_that_can_be_shown_and_encoded(tmp_path: Path) -> None:
    """Control characters, line ends, turned directions and very long names."""
    names = ["evil\x1b[2J", "two\nlines", "bidi\u202etxt", "ü ok", "n" * 255]
    for name in names:
        write_model(tmp_path / name)
    found = find(tmp_path)
    assert set(found.values()) == {""}
    assert set(found) == {
        "evil\\x1b[2J",
        "two\\nlines",
        "bidi\\u202etxt",
        "ü ok",
        "n" * 255,
    }
    for model_id in found:
        assert model_id.isprintable()
        model_id.encode()


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems refuse such names")
def test_names_that_are_not_utf8_become_text(tmp_path: Path) -> None:
    """Each byte that is no character is escaped; the path stays what it is."""
    folder = write_model(Path(os.fsdecode(os.fsencode(tmp_path) + b"/raw\xff")) / "m\udc80")
    (model,) = find_models(tmp_path, raise_to_fp32=False)
    assert (model.model_id, model.path, model.problem) == ("raw\\xff/m\\x80", folder, "")


def test_escaped_names_that_meet_keep_distinct_ids(tmp_path: Path) -> None:
    """``\\x1b`` spelled out and the character itself."""
    write_model(tmp_path / "a\x1b")
    write_model(tmp_path / "a\\x1b")
    assert set(find(tmp_path)) == {"a\\x1b", f"{tmp_path.name}/a\\x1b"}


@pytest.mark.parametrize("text", ["\ud800 lone", "\udcff byte", "a\0b", "x" * 10_000])
def test_any_text_can_be_made_printable(text: str) -> None:
    """Also surrogates that stand for no byte, as JSON may hold them."""
    assert printable(text).isprintable()
    assert printable(text).encode()
    assert len(printable(text)) <= 600


# Fingerprints


def test_a_fingerprint_changes_with_the_files(tmp_path: Path) -> None:
    """Added, removed, touched, resized, chmod: differs. Hidden files and progress: the same."""
    folder = write_model(tmp_path / "m")
    seen = {list_folder(folder).fingerprint()}

    def is_new() -> bool:
        fingerprint = list_folder(folder).fingerprint()
        was_known = fingerprint in seen
        seen.add(fingerprint)
        return not was_known

    assert not is_new()
    (folder / "model-2.safetensors.incomplete").write_bytes(b"1")
    assert is_new()
    (folder / "model-2.safetensors.incomplete").write_bytes(b"12")
    (folder / ".DS_Store").write_bytes(b"x")
    assert not is_new()
    write_safetensors(folder / "model-2.safetensors", {"b": ("F32", [1], 4)})
    assert is_new()
    os.utime(folder / "config.json", (5, 5))
    assert is_new()
    (folder / "config.json").chmod(0o600)
    assert is_new()
    (folder / "model-2.safetensors").unlink()
    assert is_new()


def test_a_fingerprint_follows_links_to_the_blobs(tmp_path: Path) -> None:
    """A blob that arrives, or is replaced, is a change though the link stays."""
    snapshot = write_hub_model(tmp_path, "org/name")
    blob = (snapshot / "model.safetensors").resolve()
    whole = list_folder(snapshot).fingerprint()
    content = blob.read_bytes()
    blob.unlink()
    dangling = list_folder(snapshot).fingerprint()
    blob.write_bytes(content[:-1])
    assert len({whole, dangling, list_folder(snapshot).fingerprint()}) == 3
