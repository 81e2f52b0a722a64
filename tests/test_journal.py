"""The journal: every event a line, and nothing a disk does reaches the host."""

from __future__ import annotations

import inspect
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from omlx_tui.engines.types import FinishReason
from omlx_tui.journal import Journal, RotatingWriter, as_facts, read_journal
from omlx_tui.pool import events
from omlx_tui.pool.events import EventLog, PinChanged, PoolEvent

TIMES = {"wall_s": 1.5, "mono_s": 2.5}


def pinned(seq: int) -> PinChanged:
    return PinChanged(seq=seq, **TIMES, model_id=f"model {seq}", is_pinned=True)


def seqs(path: Path) -> list[int]:
    return [line["seq"] for line in read_journal(path) if line["kind"] != "gap"]


class FakeDisk:
    """Keeps lines, fails as long as it is full, and can be made to hang."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.is_full = False
        self.is_closed = False
        self.attempts = 0
        self.entered = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.go_on.set()

    def write(self, line: str) -> None:
        self.attempts += 1
        self.entered.release()
        self.go_on.wait()
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.lines.append(json.loads(line))

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "journal.jsonl"


@pytest.fixture
def journal(disk: FakeDisk, path: Path) -> Iterator[Journal]:
    """On a fake disk, with room for two events that wait."""
    journal = Journal(path, 10**6, 2, queue_size=2, writer=disk)
    yield journal
    disk.go_on.set()
    journal.close()


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd(PoolEvent):
    kind: ClassVar[str] = "odd"

    model_id: str
    reason: FinishReason
    took_s: float
    inner: object


def test_an_event_is_a_line_with_all_it_says(path: Path) -> None:
    """Number, both times, kind and type first; what JSON has no word for is its text."""
    journal = Journal(path, 10**6, 2)
    log = EventLog()
    log.subscribe(journal)
    inner = (Colour.RED, Path("/x"), pinned(2), object)
    log.append(
        Odd(
            seq=7,
            **TIMES,
            model_id="m\x1b\udc80",
            reason=FinishReason.STOP,
            took_s=float("inf"),
            inner=inner,
        )
    )
    assert journal.close()
    (line,) = read_journal(path)
    assert line.pop("run")
    assert line == {
        "seq": 7,
        **TIMES,
        "kind": "odd",
        "event": "Odd",
        "model_id": "m\x1b\udc80",
        "reason": "stop",
        "took_s": None,
        "inner": [
            "red",
            "/x",
            {"seq": 2, **TIMES, "model_id": "model 2", "is_pinned": True},
            str(object),
        ],
    }
    assert list(line)[:5] == ["seq", "wall_s", "mono_s", "kind", "event"]


def test_every_type_of_event_has_its_line() -> None:
    """Also those that are added later: none needs a word here."""
    types = [
        found
        for _, found in inspect.getmembers(events, inspect.isclass)
        if issubclass(found, PoolEvent) and found is not PoolEvent
    ]
    assert types
    for event_type in types:
        names = {field.name for field in fields(event_type)}
        event = event_type(**dict.fromkeys(names, 1))
        assert names | {"kind", "event"} == set(as_facts(event))


def test_a_full_file_is_followed_by_a_new_one(path: Path) -> None:
    """The newest lines are kept, in order, in as many files as were asked for."""
    journal = Journal(path, 400, 2, queue_size=100)
    for seq in range(1, 21):
        journal(pinned(seq))
    assert journal.close()
    files = sorted(found.name for found in path.parent.iterdir())
    assert files == ["journal.jsonl", "journal.jsonl.1", "journal.jsonl.2"]
    assert all(found.stat().st_size <= 400 for found in path.parent.iterdir())
    kept = seqs(path)
    assert kept == list(range(kept[0], 21))
    assert len(kept) > 3


def test_without_backups_a_full_file_begins_again(path: Path) -> None:
    """One file, never above the size."""
    journal = Journal(path, 400, 0, queue_size=100)
    for seq in range(1, 21):
        journal(pinned(seq))
    assert journal.close()
    assert [found.name for found in path.parent.iterdir()] == ["journal.jsonl"]
    assert seqs(path)[-1] == 20


def test_a_restart_goes_on_in_the_same_file(path: Path) -> None:
    """Numbers begin again with a host; the run tells the hosts apart."""
    for _ in range(2):
        journal = Journal(path, 10**6, 2)
        journal(pinned(1))
        assert journal.close()
    first, second = read_journal(path)
    assert first["seq"] == second["seq"] == 1
    assert first["run"] != second["run"]


def test_a_torn_line_costs_itself_alone(path: Path) -> None:
    """A process that died in the middle of a line spoils neither reading nor the next line."""
    path.parent.mkdir()
    path.write_text('{"kind": "gap", "seq": 1}\n{"kind": "lo')
    journal = Journal(path, 10**6, 2)
    journal(pinned(2))
    assert journal.close()
    assert seqs(path) == [2]
    assert len(list(read_journal(path))) == 2


def test_a_slow_disk_loses_lines_and_not_the_callers_time(journal: Journal, disk: FakeDisk) -> None:
    """What does not fit in the queue is counted, and the file says how many are missing."""
    disk.go_on.clear()
    journal(pinned(1))
    disk.entered.acquire()
    for seq in range(2, 8):
        journal(pinned(seq))
    assert journal.lost == 4
    disk.go_on.set()
    assert journal.close()
    assert [line.get("seq") for line in disk.lines] == [1, None, 2, 3]
    assert disk.lines[1]["kind"] == "gap"
    assert disk.lines[1]["lost"] == 4
    assert journal.lost == 0


def test_a_full_disk_is_told_once_and_caught_up_with(path: Path, disk: FakeDisk) -> None:
    """One warning when it begins, one line when it ends; the lost ones are counted."""
    disk.is_full = True
    with capture_logs() as logs:
        journal = Journal(path, 10**6, 2, writer=disk)
        for seq in range(1, 4):
            journal(pinned(seq))
            disk.entered.acquire()
        while journal.lost < 3:
            pass
        disk.is_full = False
        journal(pinned(4))
        assert journal.close()
    assert [line.get("lost") or line["seq"] for line in disk.lines] == [3, 4]
    assert [entry["event"] for entry in logs] == ["journal_failing", "journal_writing_again"]
    assert "No space left" in logs[0]["reason"]
    assert disk.is_closed


def test_losses_at_the_very_end_are_told_too(journal: Journal, disk: FakeDisk) -> None:
    """No event has to follow for the count to be written."""
    disk.go_on.clear()
    journal(pinned(1))
    disk.entered.acquire()
    disk.is_full = True
    disk.go_on.set()
    while journal.lost < 1:
        pass
    disk.is_full = False
    assert journal.close()
    assert [line["kind"] for line in disk.lines] == ["gap"]


def test_a_disk_that_hangs_does_not_keep_the_host_from_ending(
    journal: Journal, disk: FakeDisk
) -> None:
    """``close`` gives up and says so."""
    disk.go_on.clear()
    for seq in range(1, 5):
        journal(pinned(seq))
    assert not journal.close(timeout_s=0.01)


def test_after_the_end_nothing_is_taken_and_no_thread_lives(
    journal: Journal, disk: FakeDisk
) -> None:
    """Closing twice is fine; what comes later is ignored."""
    journal(pinned(1))
    assert journal.close()
    journal(pinned(2))
    assert journal.close()
    assert len(disk.lines) == 1
    assert "journal" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_the_full_device() -> None:
    """A real write that fails for want of space; the device is not rotated away."""
    with capture_logs() as logs:
        journal = Journal(Path("/dev/full"), 1, 2)
        journal(pinned(1))
        journal(pinned(2))
        assert journal.close()
    assert journal.lost == 2
    assert "No space left" in logs[0]["reason"]
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(path: Path) -> None:
    """Costs the journal; once it can be written again, it is."""
    path.parent.mkdir(mode=0o500)
    writer = RotatingWriter(path, 10**6, 2)
    with pytest.raises(PermissionError):
        writer.write("{}")
    path.parent.chmod(0o700)
    writer.write("{}")
    writer.close()
    assert path.read_text() == "{}\n"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file is in its place: lost lines, no exception, and an end."""
    (tmp_path / "file").touch()
    with capture_logs() as logs:
        journal = Journal(tmp_path / "file" / "journal.jsonl", 10**6, 2)
        journal(pinned(1))
        assert journal.close()
    assert journal.lost == 1
    assert [entry["event"] for entry in logs] == ["journal_failing"]


def test_a_line_that_fits_in_part_is_not_there_at_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is nearly full takes some bytes before it fails: they are taken back."""
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    monkeypatch.setattr("omlx_tui.journal.fcntl.flock", lambda *_: None)
    writer = RotatingWriter(path, 10**6, 2)
    writer.write("1234")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
        with pytest.raises(OSError, match="too large"):
            writer.write("12345678")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_text() == "1234\n"
    writer.write("5")
    writer.close()
    assert path.read_text() == "1234\n5\n"


def test_two_hosts_do_not_share_a_journal(path: Path) -> None:
    """The second one would rotate the first one's file away: it goes without."""
    first, second = RotatingWriter(path, 10, 2), RotatingWriter(path, 10, 2)
    first.write("1")
    with pytest.raises(OSError, match="another process"):
        second.write("2")
    first.close()
    second.write("3")
    second.close()
    assert path.read_text() == "1\n3\n"
