"""Where models lie below a root: the layouts that tools leave behind.

- ``name`` and ``org/name`` folders (also LM Studio's ``models`` folder), or a root that is a model;
- the Hugging Face hub's cache, ``models--org--name/snapshots/<revision>``, given as ``hub`` or as
  the folder around it. ``refs/main`` decides which revision, else the newest is taken.

Folders are listed, files are not opened (but for ``refs/main``). Symlinks are followed, each real
folder is visited once, and real folders come before links to them.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path

# A root, an organisation, a model: deeper folders are not looked into.
_MAX_DEPTH = 2

_HUB_PREFIX = "models--"
_WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".npz")
# Each says by itself that the folder is one thing: an adapter, a pipeline, a sharded model.
_WHOLE_BY_THEMSELVES = ("adapter_config.json", "model_index.json", "model.safetensors.index.json")
_PARTIAL_SUFFIXES = (".incomplete", ".part", ".partial", ".crdownload", ".aria2", ".download")


def printable(text: str, *, most_chars: int = 600) -> str:
    """The text on one line, in characters that can be shown and encoded.

    What can't, such as control characters and file names that are not UTF-8, is escaped.
    """
    shown = text if len(text) <= most_chars else text[: most_chars - 1] + "…"
    if shown.isprintable():
        return shown
    try:
        raw = shown.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that stand for no byte of a file name
        raw = shown.encode("utf-8", "backslashreplace")
    decoded = raw.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in decoded)


def is_partial(name: str) -> bool:
    """Whether a file's name is that of an unfinished download or copy.

    rsync writes to ``.model.safetensors.Xy12Ab`` and renames at the end.
    """
    return name.endswith(_PARTIAL_SUFFIXES) or (name.startswith(".") and ".safetensors." in name)


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder's direct contents, as they were when it was listed.

    Attributes:
        files: regular files by name, also through symlinks; no pipes, sockets or devices, which
            would block whoever opens them.
        dangling: symlinks whose target is missing.
        subfolders: not the hidden ones; by name, with whether it is a symlink.
    """

    path: Path
    files: dict[str, os.DirEntry[str]]
    dangling: frozenset[str]
    subfolders: tuple[tuple[str, bool], ...]

    @property
    def partial(self) -> list[str]:
        """Unfinished downloads and copies, by name."""
        return sorted(name for name in self.files if is_partial(name))

    @property
    def has_config(self) -> bool:
        """Whether it says what model it is, even if that can't be read."""
        return "config.json" in self.files or "config.json" in self.dangling

    @property
    def has_weights(self) -> bool:
        """Whether it holds weights of any kind or format, whole or not."""
        names = (*self.files, *self.dangling)
        return any(
            name.endswith(_WEIGHT_SUFFIXES)
            or name in _WHOLE_BY_THEMSELVES
            or (is_partial(name) and any(f"{suffix}." in name for suffix in _WEIGHT_SUFFIXES))
            for name in names
        )

    def fingerprint(self) -> str:
        """Changes when a file is added, removed, replaced, written to or made readable.

        Unfinished files count by name only: a download is one change when it ends, not one a
        second. Hidden files don't count: Finder rewrites its own whenever somebody looks.
        """
        digest = hashlib.blake2b(digest_size=12)
        for name in sorted(self.files):
            if is_partial(name):
                facts = "partial"
            elif name.startswith("."):
                continue
            else:
                facts = _facts(self.files[name])
            digest.update(os.fsencode(name) + b"\0" + facts.encode() + b"\n")
        for name in sorted(self.dangling):
            digest.update(os.fsencode(name) + b"\0dangling\n")
        return digest.hexdigest()


def _facts(entry: os.DirEntry[str]) -> str:
    try:
        status = entry.stat()
    except OSError:
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_mode}"


def list_folder(path: Path) -> Folder:
    """List a folder.

    Raises:
        OSError: it can't be listed.
    """
    files: dict[str, os.DirEntry[str]] = {}
    dangling: set[str] = set()
    subfolders: list[tuple[str, bool]] = []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                if entry.is_dir():
                    if not entry.name.startswith("."):
                        subfolders.append((entry.name, entry.is_symlink()))
                elif entry.is_file():
                    files[entry.name] = entry
                elif entry.is_symlink() and not Path(entry.path).exists():
                    dangling.add(entry.name)
            except OSError:  # a link to itself, or into a folder that may not be entered
                dangling.add(entry.name)
    return Folder(path, files, frozenset(dangling), tuple(sorted(subfolders)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder that looks like a model.

    Attributes:
        model_id: the id it gets unless another model has that already.
        base: the folder below which that id names it.
        real_path: of the folder, without symlinks.
        hub_id: the repository, if it lies in a hub cache.
    """

    model_id: str
    base: Path
    folder: Folder
    real_path: str
    hub_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A folder to look into: its id's first part, how deep it lies, and whether in a model."""

    path: Path
    real_path: str
    prefix: str = ""
    depth: int = 0
    is_in_model: bool = False


def find_places(root: Path, *, unreadable: Callable[[Path, OSError], None]) -> list[Place]:
    """All folders below a root that look like models, or the root if it is one.

    A folder of loose weights without a config, or with a config but no weights, may also be a
    folder of models (somebody's stray file must not hide them): it is looked into as well.

    Args:
        unreadable: told of each folder that can't be listed, and of each link among folders
            whose target is missing.
    """
    steps = deque([_Step(path=root, real_path=os.path.realpath(root))])
    links: deque[_Step] = deque()
    visited: set[str] = set()
    places: list[Place] = []
    bare: list[Place] = []
    while steps or links:
        step = steps.popleft() if steps else links.popleft()
        if step.real_path in visited:
            continue
        visited.add(step.real_path)
        try:
            place, is_whole, folder = _look_at(step)
        except OSError as error:
            unreadable(step.path, error)
            continue
        if place is None:
            for name in sorted(n for n in folder.dangling if not n.startswith(".")):
                unreadable(step.path / name, FileNotFoundError(ENOENT, "it leads nowhere", name))
        if place and (is_whole or not step.is_in_model):
            (places if place.folder.has_weights or is_whole else bare).append(place)
        if not is_whole and step.depth < _MAX_DEPTH:
            # Stray files in a root must hide nothing; in a model's folder, they make it one.
            is_in_model = step.is_in_model or (place is not None and step.depth > 0)
            for child, is_link in _children(step, folder, is_in_model=is_in_model):
                (links if is_link else steps).append(child)
    holders = {holder for place in places for holder in place.folder.path.parents if bare}
    return places + [place for place in bare if place.folder.path not in holders]


def _look_at(step: _Step) -> tuple[Place | None, bool, Folder]:
    """What a folder is: a model or not, and if so whether nothing below it can be another."""
    folder = list_folder(step.path)
    name = step.path.name
    if name.startswith(_HUB_PREFIX) and any(
        n in ("snapshots", "blobs") for n, _ in folder.subfolders
    ):
        return _hub_place(step, folder), True, folder
    if not (folder.has_config or folder.has_weights):
        return None, False, folder
    if step.depth == 0:
        own_id, hub_id, base = _root_id(step.path)
    else:
        own_id = f"{step.prefix}{printable(name)}"
        hub_id, base = "", step.path.parents[step.depth - 1]
    place = Place(
        model_id=own_id, base=base, folder=folder, real_path=step.real_path, hub_id=hub_id
    )
    is_whole = folder.has_config and folder.has_weights
    return place, is_whole or any(n in folder.files for n in _WHOLE_BY_THEMSELVES), folder


def _root_id(root: Path) -> tuple[str, str, Path]:
    """Id, hub repository and base of a root that is a model, maybe one snapshot of a hub cache."""
    repository = root.parent.parent
    if root.parent.name == "snapshots" and repository.name.startswith(_HUB_PREFIX):
        hub_id = _hub_id(repository.name)
        return hub_id, hub_id, repository.parent
    return printable(root.name) or "root", "", root.parent


def _children(step: _Step, folder: Folder, *, is_in_model: bool) -> Iterator[tuple[_Step, bool]]:
    prefix = f"{step.prefix}{printable(step.path.name)}/" if step.depth else ""
    for name, is_link in folder.subfolders:
        path = step.path / name
        # Resolving each of ten thousand plain folders would take longer than listing them.
        real_path = os.path.realpath(path) if is_link else f"{step.real_path.rstrip('/')}/{name}"
        yield (
            _Step(
                path=path,
                real_path=real_path,
                prefix=prefix,
                depth=step.depth + 1,
                is_in_model=is_in_model,
            ),
            is_link,
        )


# The hub's cache


def _hub_id(folder_name: str) -> str:
    return printable(folder_name.removeprefix(_HUB_PREFIX).replace("--", "/", 1))


def _hub_place(step: _Step, repository: Folder) -> Place:
    """The repository's current snapshot, or the repository itself if it has none yet."""
    snapshot = _current_snapshot(repository.path)
    hub_id = _hub_id(repository.path.name)
    real_path = step.real_path
    if snapshot is not None:
        real_path = os.path.realpath(snapshot.path)
    return Place(
        model_id=hub_id,
        base=repository.path.parent,
        folder=snapshot or repository,
        real_path=real_path,
        hub_id=hub_id,
    )


def _current_snapshot(repository: Path) -> Folder | None:
    """The snapshot that ``refs/main`` names, else the newest one.

    Raises:
        OSError: the chosen one can't be listed.
    """
    snapshots = repository / "snapshots"
    try:
        names = [name for name, _ in list_folder(snapshots).subfolders]
    except FileNotFoundError:
        return None
    if not names:
        return None
    # Only a name that was listed is followed: the file's content is somebody else's text.
    main = _read_ref(repository / "refs" / "main")
    if main not in names:
        main = max(names, key=lambda name: ((snapshots / name).stat().st_mtime_ns, name))
    return list_folder(snapshots / main)


def _read_ref(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open(encoding="utf-8") as file:
            return file.read(200).strip()
    except (OSError, UnicodeDecodeError):
        return ""
