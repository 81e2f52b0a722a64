"""Every event of the pool as a line of JSON in a rotating file, for programs and for afterwards.

A line holds ``run`` (which start of which process), ``seq``, ``wall_s``, ``mono_s``, ``kind``,
``event`` (the type), then the event's own fields. What could not be written is counted, and a line
of kind ``gap`` says how many lines are missing; ``seq`` says which.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import structlog
from pydantic_core import to_jsonable_python

from omlx_tui.pool.events import PoolEvent

_log = structlog.get_logger(__name__)

# Some seconds of a busy host, a few hundred kilobytes.
_QUEUE_SIZE = 4096


class LineWriter(Protocol):
    """Where lines go. Called on the journal's thread only."""

    def write(self, line: str) -> None:
        """Write one line, without its end, so that it outlives the process. Raises ``OSError``."""
        ...

    def close(self) -> None: ...


class Journal:
    """Writes events on a thread of its own; subscribe the journal itself to an ``EventLog``.

    A disk that is slow, full or read-only costs lines, and never the caller's time.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        backups: int,
        *,
        queue_size: int = _QUEUE_SIZE,
        writer: LineWriter | None = None,
    ) -> None:
        self.path = path
        self._writer = writer or RotatingWriter(path, max_bytes, backups)
        self._queue: queue.Queue[PoolEvent | None] = queue.Queue(queue_size)
        self._is_closed = False
        self._lost = _Losses()
        self._run = f"{time.time_ns() // 10**6:x}-{secrets.token_hex(4)}"
        # A daemon, because a disk that hangs for good must not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    def __call__(self, event: PoolEvent) -> None:
        """Take an event; returns at once and never raises. From any thread."""
        if self._is_closed:
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._lost.add(1)

    @property
    def lost(self) -> int:
        """Events that were not written so far, and are not yet told of in the file either."""
        return self._lost.count

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what was taken, then end; idempotent. Blocks, so not for an event loop.

        Returns whether all of it was dealt with in that time; a disk that hangs may prevent it.
        """
        if not self._is_closed:
            self._is_closed = True
            try:
                self._queue.put(None, timeout=timeout_s)
            except queue.Full:
                return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _write_all(self) -> None:
        was_failing = False
        while (event := self._queue.get()) is not None:
            problem = self._write(event)
            if bool(problem) != was_failing:
                was_failing = bool(problem)
                self._tell(problem)
        self._write_gap()
        with suppress(OSError):
            self._writer.close()

    def _write(self, event: PoolEvent) -> str:
        """Returns what is wrong, if it could not be written."""
        problem = self._write_gap()
        if not problem:
            problem = self._write_line(lambda: as_facts(event))
        if problem:
            self._lost.add(1)
        return problem

    def _write_gap(self) -> str:
        count = self._lost.count
        if not count:
            return ""
        gap = {"wall_s": time.time(), "mono_s": time.monotonic(), "kind": "gap", "lost": count}
        problem = self._write_line(lambda: gap)
        if not problem:
            self._lost.add(-count)
        return problem

    def _write_line(self, facts: Callable[[], dict[str, Any]]) -> str:
        try:
            line = json.dumps({"run": self._run, **facts()})
            self._writer.write(line)
        except Exception as error:  # noqa: BLE001 - nothing an event or a disk does may end the thread
            return str(error) or type(error).__name__
        return ""

    def _tell(self, problem: str) -> None:
        """Once per change, not once per event."""
        if problem:
            _log.warning("journal_failing", path=str(self.path), reason=problem)
        else:
            _log.info("journal_writing_again", path=str(self.path))


class _Losses:
    """A counter that two threads change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count


class RotatingWriter:
    """Appends lines to a file; a full one becomes ``.1``, and ``.1`` becomes ``.2``.

    Nothing is buffered: a line is in the file, or the caller hears of it and no part of it is. One
    process writes at a time, since two would rotate each other's file away. Not
    ``logging.handlers``: it hides what fails, and at exit waits for a disk that hangs.
    """

    def __init__(self, path: Path, max_bytes: int, backups: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._file: BinaryIO | None = None

    def write(self, line: str) -> None:
        data = line.encode() + b"\n"
        try:
            file = self._file or self._open()
            size, is_regular = _size_of(file)
            if is_regular and size and size + len(data) > self._max_bytes:
                file = self._rotate()
            _append(file, data)
        except OSError:
            # Opened anew for the next line: the folder may have come back.
            self.close()
            raise

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = file = self._path.open("ab", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError("another process writes this journal") from error
        except OSError:
            # A network share without locks is no reason to keep no journal.
            pass
        if _is_torn(self._path):
            _append(file, b"\n")
        return file

    def _rotate(self) -> BinaryIO:
        files = [self._path, *(self._backup(number) for number in range(1, self._backups + 1))]
        for older, newer in pairwise(reversed(files)):
            with suppress(FileNotFoundError):
                newer.replace(older)
        if not self._backups:
            self._path.unlink()
        self.close()
        return self._open()

    def _backup(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _append(file: BinaryIO, data: bytes) -> None:
    """All of it or nothing; a disk that is nearly full takes a part first, then fails."""
    size, _ = _size_of(file)
    rest = data
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with suppress(OSError):
            file.truncate(size)
        raise


def _size_of(file: BinaryIO) -> tuple[int, bool]:
    """In bytes, and whether it is a file of the usual kind: a device must not be renamed."""
    status = os.fstat(file.fileno())
    return status.st_size, stat.S_ISREG(status.st_mode)


def _is_torn(path: Path) -> bool:
    """Whether a process died in the middle of the last line."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def as_facts(event: PoolEvent) -> dict[str, Any]:
    """An event as JSON has it; paths and unknown types as their text, infinity as null."""
    fields = cast("dict[str, Any]", to_jsonable_python(event, fallback=str, inf_nan_mode="null"))
    head = {name: fields.pop(name) for name in ("seq", "wall_s", "mono_s")}
    return {**head, "kind": event.kind, "event": type(event).__name__, **fields}


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal and its backups, the oldest first; torn ones are skipped."""
    backups = sorted(
        (found for found in path.parent.glob(f"{path.name}.*") if found.suffix[1:].isdigit()),
        key=lambda found: -int(found.suffix[1:]),
    )
    for file in (*backups, path):
        if not file.exists():
            continue
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                yield json.loads(line)
