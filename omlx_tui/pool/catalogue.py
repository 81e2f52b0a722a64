"""What the folders hold, and how the entries follow when that changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from omlx_tui.pool.discovery import (
    Changes,
    Discovery,
    ExaminationCache,
    FoundModel,
    diff,
    existing_root,
    find_all,
)
from omlx_tui.pool.entry import EngineEntry
from omlx_tui.pool.options import PoolOptions
from omlx_tui.pool.snapshot import ModelState


class Catalogue:
    """The roots, and what was last seen in them.

    Looking reads the disk and may be done in a thread; taking over what was seen changes entries
    and belongs on the pool's loop.
    """

    def __init__(self, options: PoolOptions, *, raise_to_fp32: Callable[[], bool]) -> None:
        self.roots: list[Path] = []
        self.seen = Discovery()
        self._options = options
        self._raise_to_fp32 = raise_to_fp32
        self._cache = ExaminationCache()
        # What was said of models that are away; a disk may be mounted again.
        self._kept: dict[str, tuple[bool, float]] = {}

    def add_root(self, root: Path) -> Path:
        """Look there too from now on.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no such folder now.
        """
        root = existing_root(root)
        if root not in self.roots:
            self.roots.append(root)
        return root

    def look(self) -> Discovery:
        """What the roots hold now; costs a listing and the reading of what is new."""
        roots = tuple(self.roots)
        return find_all(roots, raise_to_fp32=self._raise_to_fp32(), cache=self._cache)

    def take_over(self, discovery: Discovery, entries: dict[str, EngineEntry]) -> Changes:
        """Make the entries follow; whoever is loaded or loading keeps its entry.

        A model whose folder has gone leaves with its folder, or, while it is in memory or asked
        for, at a later look.
        """
        changes = diff(self.seen, discovery)
        self.seen = discovery
        for model in (*changes.added, *changes.changed):
            entry = entries.get(model.model_id)
            if entry is None:
                entries[model.model_id] = self._new_entry(model)
            else:
                _update(entry, model)
        for model_id in [each for each in entries if each not in discovery.models]:
            entry = entries[model_id]
            if entry.engine is None and entry.attempt is None and entry.leases == 0:
                self._kept[model_id] = (entry.is_pinned, entry.ttl_s)
                del entries[model_id]
            else:
                entry.is_servable, entry.problem = False, "its folder has gone"
        return changes

    def remember_pin(self, model_id: str) -> None:
        """Pin a model that is not there, should it come."""
        self._kept[model_id] = (True, self._options.ttl_of(model_id))

    def _new_entry(self, model: FoundModel) -> EngineEntry:
        default = (False, self._options.ttl_of(model.model_id))
        is_pinned, ttl_s = self._kept.pop(model.model_id, default)
        return EngineEntry(
            is_pinned=is_pinned,
            model_id=model.model_id,
            path=model.path,
            model_type=model.model_type,
            weights_bytes=model.weights_bytes,
            headroom_share=self._options.headroom_share,
            ttl_s=ttl_s,
            is_servable=not model.problem,
            problem=model.problem,
        )


def _update(entry: EngineEntry, model: FoundModel) -> None:
    """Take over new facts about a known model; its files may be what a failed load waited for."""
    entry.path = model.path
    entry.model_type = model.model_type
    entry.is_servable = not model.problem
    entry.problem = model.problem
    entry.failures, entry.retry_at_s = 0, 0.0
    entry.found_bytes = model.weights_bytes
    if entry.engine is None and entry.attempt is None:
        entry.state = ModelState.UNLOADED
        entry.forget_measure()
