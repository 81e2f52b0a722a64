"""Changes in the model folders are noticed: once, when they have settled, and at once cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from omlx_tui.pool.discovery import Changes, Discovery, ExaminationCache, find_all
from omlx_tui.pool.watching import watch
from tests.model_folders import write_model


class Watched:
    """A watch over one root whose pauses end when the test says so."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reports: list[tuple[Discovery, Changes]] = []
        self.pauses: list[float] = []
        self.look: Callable[[], Discovery] = self.find
        self.now = 0.0
        self._cache = ExaminationCache()
        self._go_on = asyncio.Event()
        self._is_pausing = asyncio.Event()
        self.known = self.find()
        self.task = asyncio.create_task(
            watch(
                lambda: self.look(),
                self.take_over,
                known=lambda: self.known,
                interval_seconds=2.0,
                sleep=self._sleep,
                clock=lambda: self.now,
            )
        )

    def take_over(self, seen: Discovery, changes: Changes) -> None:
        self.known = seen
        self.reports.append((seen, changes))

    def find(self) -> Discovery:
        return find_all([self.root], raise_to_fp32=False, cache=self._cache)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._is_pausing.set()
        await self._go_on.wait()
        self._go_on.clear()

    async def pass_looks(self, count: int = 1) -> list[str]:
        """Let so many looks happen; what they reported, as signs and ids."""
        already = len(self.reports)
        for _ in range(count):
            await self._is_pausing.wait()
            self._is_pausing.clear()
            self._go_on.set()
            pausing = asyncio.ensure_future(self._is_pausing.wait())
            await asyncio.wait({pausing, self.task}, return_when=asyncio.FIRST_COMPLETED)
            pausing.cancel()
        return [sign for _, changes in self.reports[already:] for sign in signs(changes)]


def signs(changes: Changes) -> Iterator[str]:
    for sign, models in (
        ("+", changes.added),
        ("-", changes.removed),
        ("~", changes.changed),
    ):
        for model in models:
            yield sign + model.model_id


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    write_model(tmp_path / "root" / "a")
    watched = Watched(tmp_path / "root")
    yield watched
    watched.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watched.task


async def test_nothing_is_reported_while_nothing_changes(watched: Watched) -> None:
    """However often it looks; what the caller knows already is no news."""
    assert await watched.pass_looks(4) == []
    assert watched.pauses == [2.0] * 5


async def test_a_change_is_reported_once_when_it_has_settled(watched: Watched) -> None:
    """A model that comes, changes or goes: one report, at the second look that sees it."""
    write_model(watched.root / "b")
    assert await watched.pass_looks() == []
    assert await watched.pass_looks() == ["+b"]
    assert await watched.pass_looks(3) == []
    (watched.root / "b" / "tokenizer.json").unlink()
    shutil.rmtree(watched.root / "a")
    assert await watched.pass_looks(2) == ["-a", "~b"]
    seen, _ = watched.reports[-1]
    assert list(seen.models) == ["b"]
    assert "no tokenizer" in seen.models["b"].problem


async def test_what_comes_and_goes_between_looks_is_no_report(watched: Watched) -> None:
    """A root that is away for a moment leaves everything as it was."""
    watched.root.rename(watched.root.with_name("away"))
    assert await watched.pass_looks() == []
    watched.root.with_name("away").rename(watched.root)
    assert await watched.pass_looks(4) == []
    assert watched.reports == []


async def test_a_root_may_vanish_and_come_back(watched: Watched) -> None:
    """Its models go with a warning and return; the watch goes on."""
    watched.root.rename(watched.root.with_name("away"))
    assert await watched.pass_looks(2) == ["-a"]
    assert "mounted" in watched.reports[-1][0].warnings[0].reason
    watched.root.with_name("away").rename(watched.root)
    assert await watched.pass_looks(2) == ["+a"]
    assert watched.reports[-1][0].warnings == ()


async def test_an_empty_root_that_vanishes_is_reported_for_its_warning(watched: Watched) -> None:
    """No model has changed, and yet the operator should know."""
    shutil.rmtree(watched.root / "a")
    await watched.pass_looks(2)
    watched.root.rmdir()
    assert await watched.pass_looks(2) == []
    seen, changes = watched.reports[-1]
    assert not changes
    assert "no such folder" in seen.warnings[0].reason


async def test_a_long_copy_is_reported_before_it_ends(watched: Watched) -> None:
    """Every fifth look while it goes on, and once more at its end."""
    folder = write_model(watched.root / "b")
    reports: list[str] = []
    for part in range(10):
        (folder / f"part-{part}.txt").write_text("")
        reports += await watched.pass_looks()
    assert reports == ["+b", "~b"]
    (folder / "last.txt").write_text("")
    assert await watched.pass_looks(2) == ["~b"]


async def test_a_look_that_fails_concludes_nothing(watched: Watched) -> None:
    """A disk's error is not the end of every model on it, nor of the watch."""

    def fail() -> Discovery:
        raise OSError(5, "Input/output error")

    watched.look = fail
    assert await watched.pass_looks(3) == []
    watched.look = watched.find
    write_model(watched.root / "b")
    assert await watched.pass_looks(2) == ["+b"]


async def test_a_fault_in_the_look_ends_the_watch(watched: Watched) -> None:
    """It is not swallowed: whoever owns the task sees it."""

    def fail() -> Discovery:
        raise ZeroDivisionError

    watched.look = fail
    await watched.pass_looks()
    with pytest.raises(ZeroDivisionError):
        await watched.task
    watched.task = asyncio.create_task(asyncio.sleep(0))


async def test_slow_looks_are_made_less_often(watched: Watched) -> None:
    """A twentieth of the time at most goes into looking."""

    def slow() -> Discovery:
        watched.now += 1.0
        return watched.find()

    watched.look = slow
    await watched.pass_looks()
    assert watched.pauses == [2.0, 20.0]


async def test_cancelling_ends_it_at_once_and_nothing_is_reported(watched: Watched) -> None:
    """Also during a look that does not return, which is then not heard."""
    has_begun, may_end = threading.Event(), threading.Event()

    def stuck() -> Discovery:
        has_begun.set()
        may_end.wait(60)
        return Discovery()

    watched.look = stuck
    looking = asyncio.ensure_future(watched.pass_looks())
    await asyncio.to_thread(has_begun.wait)
    watched.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watched.task
    assert not may_end.is_set()
    may_end.set()
    await looking
    assert watched.reports == []


async def test_a_look_by_the_caller_in_between_is_known(watched: Watched) -> None:
    """The operator rescans during a short absence; the model's return is a change again."""
    write_model(watched.root / "m")
    assert await watched.pass_looks(3) == ["+m"]
    (watched.root / "m").rename(watched.root / ".m")
    watched.known = watched.find()
    (watched.root / ".m").rename(watched.root / "m")
    assert await watched.pass_looks(3) == ["+m"]
