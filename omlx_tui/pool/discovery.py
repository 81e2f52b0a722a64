"""Which models the folders hold, how large they will be, and why one can't be served.

Reads configuration and headers only: nothing found is ever executed. Where models lie is
``layouts``' knowledge, what is wrong with one is ``faults``'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import MappingProxyType

from omlx_tui.pool.faults import Examination, examine
from omlx_tui.pool.layouts import Place, find_places, printable

_IS_MOUNTED = "is its disk mounted?"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A folder that looks like a model.

    Attributes:
        model_id: printable text, unique among the models of one discovery.
        weights_bytes: the estimate from the headers, as the weights will be held.
        problem: why it can't be served, one line; empty if it can.
        fingerprint: differs when its files do (their names, sizes, times, permissions).
    """

    model_id: str
    path: Path
    model_type: str
    weights_bytes: int
    problem: str = ""
    fingerprint: str


@dataclass(frozen=True, slots=True)
class FolderWarning:
    """A root, or a folder in one, in which nothing can be found now. One line."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """What several roots hold at one moment.

    Attributes:
        models: by id, in the order of their ids.
    """

    models: Mapping[str, FoundModel] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[FolderWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs between two discoveries, each in the order of ids; false if nothing does.

    Attributes:
        removed: as they were.
        changed: as they are now; their files, place or examination differ.
    """

    added: tuple[FoundModel, ...] = ()
    removed: tuple[FoundModel, ...] = ()
    changed: tuple[FoundModel, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


class ExaminationCache:
    """Remembers what was found in a folder until its fingerprint changes.

    Headers and configurations are read once per fingerprint, so that looking again costs a
    listing. May be shared by threads: entries are immutable and replaced whole.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str, bool], tuple[str, Examination]] = {}

    def examine(self, place: Place, fingerprint: str, *, raise_to_fp32: bool) -> Examination:
        """The examination of a folder whose files have this fingerprint.

        One that failed to read a file is not remembered: the next may succeed.
        """
        key = (place.folder.path, place.hub_id, raise_to_fp32)
        known_fingerprint, known = self._known.get(key, ("", None))
        if known is not None and known_fingerprint == fingerprint:
            return known
        try:
            examination = examine(place, raise_to_fp32=raise_to_fp32)
        except OSError as error:
            return Examination(problem=f"{_reason(error)}; check its disk and its permissions")
        self._known[key] = (fingerprint, examination)
        return examination


def find_models(root: Path, *, raise_to_fp32: bool) -> list[FoundModel]:
    """All models below ``root`` (which may be one itself), by id.

    Ids are the folder's path below the root, ``name`` or ``org/name``, or the repository's in a
    hub cache; a root that is itself a model gives its own name. ``raise_to_fp32`` says how the
    weights will be held.

    Raises:
        FileNotFoundError: there is no such folder.
        NotADirectoryError: it is a file.
    """
    return list(find_all([existing_root(root)], raise_to_fp32=raise_to_fp32).models.values())


def existing_root(root: Path) -> Path:
    """The folder itself, as somebody may have written it.

    Raises:
        FileNotFoundError: there is no such folder.
        NotADirectoryError: it is a file.
    """
    root = root.expanduser().resolve()
    if not root.exists():
        raise FileNotFoundError(f"There is no folder {root}. Name one that holds models.")
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is a file. Name the folder that holds the models.")
    return root


def find_all(
    roots: Iterable[Path], *, raise_to_fp32: bool, cache: ExaminationCache | None = None
) -> Discovery:
    """All models below several roots; a root that is missing is a warning, never an error.

    A folder that several roots or links lead to is one model, under the first id found. Where
    two folders would get the same id, the first keeps it (roots in the order given, then by
    path) and the other's begins with as many of the folders around it as it takes:
    ``name``, then ``models/name`` if it lies in a root ``…/models``, then ``disk/models/name``.

    Args:
        cache: what earlier calls have read.
    """
    cache = cache or ExaminationCache()
    warnings: list[FolderWarning] = []
    seen: set[str] = set()
    found: dict[str, FoundModel] = {}
    for root in roots:
        for place in _places(root, warnings):
            if place.real_path in seen:
                continue
            seen.add(place.real_path)
            model_id = next(name for name in _possible_ids(place) if name not in found)
            found[model_id] = _found_model(model_id, place, cache, raise_to_fp32=raise_to_fp32)
    return Discovery(
        MappingProxyType({model_id: found[model_id] for model_id in sorted(found)}),
        tuple(warnings),
    )


def diff(old: Discovery, new: Discovery) -> Changes:
    """What one has to do to get from one discovery to the other."""
    return Changes(
        added=tuple(m for model_id, m in new.models.items() if model_id not in old.models),
        removed=tuple(m for model_id, m in old.models.items() if model_id not in new.models),
        changed=tuple(m for model_id, m in new.models.items() if old.models.get(model_id, m) != m),
    )


def _places(root: Path, warnings: list[FolderWarning]) -> list[Place]:
    """The places of one root in the order of their paths, or a warning why there are none."""

    def warn(path: Path, error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            warnings.append(FolderWarning(path, "it is a link to what is missing; " + _IS_MOUNTED))
        else:
            warnings.append(FolderWarning(path, f"{_reason(error)}; check its permissions"))

    try:
        resolved = root.expanduser().resolve()
        if not resolved.exists():
            warnings.append(FolderWarning(root, f"there is no such folder; {_IS_MOUNTED}"))
            return []
        if not resolved.is_dir():
            warnings.append(FolderWarning(root, "it is a file; name the folder that holds models"))
            return []
        already = len(warnings)
        places = find_places(resolved, unreadable=warn)
    except (OSError, RuntimeError) as error:  # a link to itself, a home that is not known
        warnings.append(FolderWarning(root, f"it can't be looked into: {printable(str(error))}"))
        return []
    if not places and len(warnings) == already:
        warnings.append(FolderWarning(root, f"it holds no models; {_IS_MOUNTED}"))
    return sorted(places, key=lambda place: (place.model_id, place.folder.path))


def _reason(error: OSError) -> str:
    name = Path(str(error.filename)).name if error.filename else "it"
    return printable(f"{name} can't be read ({error.strerror or error})")


def _possible_ids(place: Place) -> Iterator[str]:
    model_id = place.model_id
    yield model_id
    for folder in (place.base, *place.base.parents):
        if folder.name:
            model_id = f"{printable(folder.name)}/{model_id}"
            yield model_id
    for number in count(2):
        yield f"{place.model_id}~{number}"


def _found_model(
    model_id: str, place: Place, cache: ExaminationCache, *, raise_to_fp32: bool
) -> FoundModel:
    # Before the files are read: what changes meanwhile gives another one at the next look.
    fingerprint = place.folder.fingerprint()
    examination = cache.examine(place, fingerprint, raise_to_fp32=raise_to_fp32)
    return FoundModel(
        model_id=model_id,
        path=place.folder.path,
        model_type=examination.model_type,
        weights_bytes=examination.weights_bytes,
        problem=examination.problem,
        fingerprint=fingerprint,
    )
