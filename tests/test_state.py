"""What the operator changed: remembered, also through crashes and beside other hosts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from omlx_tui.settings import HostSettings, ModelSettings
from omlx_tui.sizes import Budget
from omlx_tui.state import OperatorState, StateFile

PINNED = OperatorState(pins={"a": True})


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def file(tmp_path: Path, warnings: list[str]) -> StateFile:
    """A file in a folder that does not exist yet."""
    return StateFile(tmp_path / "state" / "state.json", warn=warnings.append)


def pin(model_id: str) -> OperatorState:
    return PINNED.with_pin(model_id, is_pinned=True)


def test_nothing_is_remembered_at_first(file: StateFile, warnings: list[str]) -> None:
    """No file is no fault, and looking makes none."""
    assert file.read() == OperatorState()
    assert not warnings
    assert not file.path.parent.exists()


def test_a_change_is_there_after_a_restart(file: StateFile) -> None:
    """Pins, times to live and the budget; another one leaves them alone."""
    file.change(lambda state: state.with_pin("a", is_pinned=False))
    file.change(lambda state: state.with_ttl("b", 90).with_ttl("c", 0))
    kept = file.change(lambda state: state.with_budget(8_000_000))
    assert kept == OperatorState(pins={"a": False}, ttl_s={"b": 90, "c": 0}, budget_bytes=8_000_000)
    assert StateFile(file.path).read() == kept


def test_a_change_can_be_taken_back(file: StateFile) -> None:
    """Then the settings say again."""
    state = OperatorState().with_ttl("b", 90).with_budget(1)
    assert state.with_ttl("b", None).with_budget(None) == OperatorState()
    assert state.with_ttl("nobody", None) == state


@pytest.mark.parametrize("moment", ["pathlib.Path.replace", "os.fsync"])
def test_a_crash_in_the_middle_of_a_write_leaves_the_old_state(
    file: StateFile, warnings: list[str], moment: str
) -> None:
    """Killed before the new file is in place, a process changed nothing, and hinders nobody."""
    file.change(lambda _: PINNED)
    program = (
        "import os, signal, pathlib, sys; from omlx_tui.state import StateFile\n"
        f"{moment} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"StateFile(pathlib.Path({str(file.path)!r}))"
        ".change(lambda state: state.with_pin('b', is_pinned=True))"
    )
    killed = subprocess.run([sys.executable, "-c", program], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert file.path.with_name("state.json.new").exists()
    assert file.read() == PINNED
    assert file.change(lambda state: state.with_pin("b", is_pinned=True)) == pin("b")
    assert not file.path.with_name("state.json.new").exists()
    assert not warnings


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"version": 1, "pins": {"a": tr',
        b"\xff\x00garbage",
        b"[]",
        b'{"version": 2}',
        b'{"version": 1, "surprise": 1}',
        b'{"version": 1, "ttl_s": {"a": -1}}',
        b'{"version": 1, "ttl_s": {"a": NaN}}',
        b'{"version": 1, "budget_bytes": 0}',
        b"[" * 100_000,
    ],
)
def test_a_file_that_makes_no_sense_is_set_aside(
    file: StateFile, warnings: list[str], content: bytes
) -> None:
    """With one warning, and not lost: somebody may want to look at it."""
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    assert file.read() == OperatorState()
    assert not file.path.exists()
    assert file.path.with_name("state.json.bad").read_bytes() == content
    (warning,) = warnings
    assert "state.json.bad" in warning
    assert file.read() == OperatorState()
    assert len(warnings) == 1


def test_a_change_also_sets_a_bad_file_aside(file: StateFile, warnings: list[str]) -> None:
    """The change is kept, the bad file too."""
    file.path.parent.mkdir()
    file.path.write_text("{")
    assert file.change(lambda state: state.with_pin("a", is_pinned=True)) == PINNED
    assert file.read() == PINNED
    assert len(warnings) == 1


def test_a_file_that_cannot_be_read_is_a_warning(file: StateFile, warnings: list[str]) -> None:
    """It is left where it is, and the host starts."""
    file.path.mkdir(parents=True)
    assert file.read() == OperatorState()
    assert "nothing is remembered" in warnings[0]
    assert file.path.is_dir()


def test_a_change_that_cannot_be_kept_says_so(tmp_path: Path) -> None:
    """The caller tells the operator; the pool has changed all the same."""
    (tmp_path / "file").touch()
    file = StateFile(tmp_path / "file" / "state.json")
    with pytest.raises(OSError, match="file"):
        file.change(lambda state: state)


def test_a_change_that_raises_keeps_the_file_and_frees_the_lock(file: StateFile) -> None:
    """The next change is not kept waiting."""
    file.change(lambda _: PINNED)
    with pytest.raises(KeyError):
        file.change(lambda state: OperatorState(budget_bytes=state.pins["nobody"]))
    assert file.change(lambda state: state) == PINNED


def _pin_many(path: Path, host: str) -> None:
    file = StateFile(path)
    for number in range(25):
        model_id = f"{host}-{number}"
        file.change(lambda state, m=model_id: state.with_pin(m, is_pinned=True))


def test_two_hosts_keep_both_their_changes(file: StateFile, warnings: list[str]) -> None:
    """At the same time, in two processes: every change of each is there in the end."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as hosts:
        for done in [hosts.submit(_pin_many, file.path, host) for host in "xy"]:
            done.result()
    assert set(file.read().pins) == {f"{host}-{number}" for host in "xy" for number in range(25)}
    assert not warnings
    assert json.loads(file.path.read_text())["version"] == 1


def test_the_operator_wins_over_the_settings() -> None:
    """Pins, times to live and budget; what was not changed stays."""
    settings = HostSettings(
        pin=("a", "b"),
        max_model_memory=Budget.parse("auto"),
        model={"c": ModelSettings(pin=True, ttl="1m", top_k=3), "d": ModelSettings(pin=True)},
    )
    state = OperatorState(
        pins={"a": False, "c": False, "d": True, "e": True},
        ttl_s={"c": 5, "f": 0},
        budget_bytes=7,
    )
    outcome = state.over(settings)
    assert outcome.pins == ("b", "d")
    assert state.extra_pins(settings) == ("e",)
    assert outcome.budget.resolve(capacity_bytes=1, auto_bytes=1) == 7
    options = outcome.pool_options()
    assert (options.ttl_of("c"), options.ttl_of("f")) == (5, 0)
    assert options.of("c").sampling.top_k == 3
    assert OperatorState().over(settings) == settings


def test_a_flag_given_this_time_wins_over_the_operator() -> None:
    """Over what it is about, and over nothing else."""
    state = OperatorState(pins={"a": True}, ttl_s={"a": 1}, budget_bytes=1)
    assert state.yielding_to({"port"}) == state
    assert state.yielding_to({"pin"}) == OperatorState(ttl_s={"a": 1}, budget_bytes=1)
    assert state.yielding_to({"ttl"}) == OperatorState(pins={"a": True}, budget_bytes=1)
    assert state.yielding_to({"max_model_memory"}) == OperatorState(
        pins={"a": True}, ttl_s={"a": 1}
    )
