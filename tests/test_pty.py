"""The console on a real pseudo-terminal: what Textual's own test driver can't see."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path

import pexpect
import psutil
import pyte
import pytest

from omlx_tui.client import PromptError, stream_prompt

COLUMNS, ROWS = 120, 40
SLOWEST = "gemma3-2.6m-4bit"


class Terminal:
    """A console in a terminal of its own: what it wrote, and what a person would see."""

    def __init__(self, log_file: Path, *options: str) -> None:
        self.log_file = log_file
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "omlx_tui", "--port", "0", "--log-file", str(log_file), *options],
            dimensions=(ROWS, COLUMNS),
            env={
                **os.environ,
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                "HOME": str(log_file.parent),
                "XDG_CONFIG_HOME": str(log_file.parent),
                "XDG_STATE_HOME": str(log_file.parent),
            },
            timeout=60,
        )
        self.settings_before = termios.tcgetattr(self.child.child_fd)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    @property
    def url(self) -> str:
        return next(word for word in self.text.split() if word.startswith("ws://"))

    def read(self) -> None:
        """Take in what has been written; returns when there is something or the program ended."""
        chunk = self.child.read_nonblocking(65536, timeout=60)
        self.written += chunk
        self._stream.feed(chunk)

    def see(self, what: str | Callable[[str], bool]) -> None:
        """Read until the screen shows it."""
        is_there = what if callable(what) else lambda text: what in text
        while not is_there(self.text):
            self.read()

    def end(self) -> int:
        """Read to the end of output; returns the exit code."""
        try:
            while True:
                self.read()
        except pexpect.EOF:
            self.child.close()
        assert self.child.exitstatus is not None, f"ended by signal {self.child.signalstatus}"
        return self.child.exitstatus

    def hang_up(self) -> None:
        """Close the terminal under the program."""
        self.child.ptyproc.fileobj.close()
        self.child.closed = self.child.ptyproc.closed = True

    def prompt(self, model: str, text: str = "Hello!", *, tokens: int = 4) -> None:
        """Send a prompt as another terminal would, and wait for its answer."""
        command = [sys.executable, "-m", "omlx_tui", "prompt", "--url", self.url, "-m", model]
        subprocess.run(
            [*command, "--max-tokens", str(tokens), text], check=True, capture_output=True
        )

    def assert_restored(self) -> None:
        """The operator's terminal is as it was: main screen, no mouse, a cursor, its settings."""
        tail = self.written[self.written.rindex(b"\x1b[?1049h") :]
        for switched_off in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?2004l"):
            assert switched_off in tail
        assert tail.rindex(b"\x1b[?25h") > tail.rindex(b"\x1b[?25l")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "omlx.log")
    terminal.see("5 models")
    yield terminal
    terminal.child.close(force=True)


@contextmanager
def stories(url: str, *, count: int) -> Iterator[None]:
    """Clients that wait for a long story each, one after the other: somebody is always live."""

    async def listen() -> None:
        with suppress(PromptError):
            story = stream_prompt(url, "Tell me a long story about a fox.", model=SLOWEST)
            async with aclosing(story) as events:
                async for _ in events:
                    pass

    async def listen_to_all() -> None:
        await asyncio.gather(*(listen() for _ in range(count)))

    audience = threading.Thread(target=asyncio.run, args=(listen_to_all(),))
    audience.start()
    try:
        yield
    finally:
        audience.join()


def test_prompts_evict_before_the_operators_eyes_and_quitting_leaves_nothing(
    terminal: Terminal,
) -> None:
    """Loads, an eviction with its reason and bytes; then q: exit code 0, a clean terminal."""
    process = psutil.Process(terminal.child.pid)
    terminal.prompt("llama-1m-fp32")
    terminal.see("loaded llama-1m-fp32")
    terminal.prompt("phi3-1m-bf16")
    terminal.see("evicted llama-1m-fp32 for phi3-1m-bf16")
    terminal.see("freed 3.")
    assert len(process.children(recursive=True)) == 0
    terminal.see("No requests")  # else it would ask
    terminal.child.send("q")
    assert terminal.end() == 0
    terminal.assert_restored()
    assert not process.is_running()
    assert "event=host_closed" in terminal.log_file.read_text()


def test_keys_steer_the_pool(terminal: Terminal) -> None:
    """Load the model at the cursor, pin it, unload it."""
    terminal.child.send("l")
    terminal.see("loaded gemma3-2.6m-4bit")
    terminal.child.send("p")
    terminal.see("pinned gemma3-2.6m-4bit")
    terminal.child.send("u")
    terminal.see("unloaded gemma3-2.6m-4bit (by the operator)")
    terminal.child.send("q")
    assert terminal.end() == 0


def test_ctrl_c_asks_while_requests_are_live(terminal: Terminal) -> None:
    """Stories are told: Ctrl+C asks, no is the default, yes ends host and stories."""
    with stories(terminal.url, count=12):
        terminal.see("live")
        terminal.child.send("\x03")
        terminal.see("Quit omlx-tui?")
        terminal.child.send("\r")
        terminal.see(lambda text: "Quit omlx-tui?" not in text)
        terminal.child.send("\x03")
        terminal.see("Quit omlx-tui?")
        terminal.child.send("y")
        assert terminal.end() == 0
    terminal.assert_restored()


def test_sigterm_restores_the_terminal(terminal: Terminal) -> None:
    """A service manager ends the console: the host closes, the terminal is clean."""
    terminal.child.kill(signal.SIGTERM)
    assert terminal.end() == 0
    terminal.assert_restored()
    assert "event=host_closed" in terminal.log_file.read_text()


def test_a_terminal_that_goes_away_ends_the_host_in_order(terminal: Terminal) -> None:
    """The SSH link drops: no orphan that spins, and the log says that the host closed."""
    terminal.hang_up()
    terminal.child.ptyproc.wait()
    assert "event=host_closed" in terminal.log_file.read_text()


def test_a_start_that_fails_never_touches_the_screen(tmp_path: Path) -> None:
    """A missing folder: one line, exit code 1, no alternate screen."""
    terminal = Terminal(tmp_path / "omlx.log", "--models", str(tmp_path / "nowhere"))
    assert terminal.end() == 1
    assert b"There is no folder" in terminal.written
    assert b"\x1b[?1049h" not in terminal.written


def test_an_empty_folder_is_a_designed_screen(tmp_path: Path) -> None:
    """No models: the console says how to name a folder that has some."""
    (tmp_path / "models").mkdir()
    terminal = Terminal(tmp_path / "omlx.log", "--models", str(tmp_path / "models"))
    terminal.see("--models DIR")
    terminal.child.send("q")
    assert terminal.end() == 0
