"""The commands as a shell sees them: output, errors, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omlx_tui import __version__
from omlx_tui.cli import app
from tests.gateway.fakes import FakePool, serving
from tests.model_folders import write_model

PROGRAM = [sys.executable, "-m", "omlx_tui"]
runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_settings_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither here nor in the processes that are started; platformdirs asks these first."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


def invoke(*args: str, input: str | None = None) -> object:  # noqa: A002 - the runner's own name
    return runner.invoke(app, list(args), input=input)


def test_the_version_and_the_help() -> None:
    """Every command is in the help."""
    assert __version__ in invoke("--version").output
    output = invoke("--help").output
    for command in ("serve", "prompt", "models", "config"):
        assert command in output


def test_models_lists_what_was_found_and_why_not(tmp_path: Path) -> None:
    """Servable ones with their size, the others with their reason; also for programs."""
    write_model(tmp_path / "good", weights_bytes=4000)
    write_model(tmp_path / "evil\x1b[2J", model_type="no_such")
    result = invoke("models", "--models", str(tmp_path))
    assert result.exit_code == 0
    assert "good" in result.output
    assert "4.0 kB" in result.output
    assert "mlx-lm has no model type" in result.output
    assert "\x1b" not in result.output
    facts = json.loads(invoke("models", "--models", str(tmp_path), "--json").output)
    assert {fact["id"]: fact["is_servable"] for fact in facts} == {
        "good": True,
        r"evil\x1b[2J": False,
    }


def test_models_without_any_says_where_it_looked(tmp_path: Path) -> None:
    """An empty folder is no error; a missing one is."""
    result = invoke("models", "--models", str(tmp_path))
    assert result.exit_code == 0
    assert f"No models in {tmp_path}" in result.output
    missing = invoke("models", "--models", str(tmp_path / "no"))
    assert missing.exit_code == 1
    assert "There is no folder" in missing.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("serve", "--max-model-memory", "lots"), "Write 6MB, 4GB"),
        (("serve", "--max-model-memory", "0%"), "Write 1% to 100%"),
        (("serve", "--port", "70000"), "65535"),
        (("--port", "1234", "serve"), "write --port behind the command"),
        (("nonsense",), "No such command"),
    ],
)
def test_a_wrong_word_is_a_usage_error(args: tuple[str, ...], says: str) -> None:
    """Exit code 2 and what would be right."""
    result = invoke(*args)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.replace("│", " ").split())


def test_a_console_without_a_terminal_is_refused() -> None:
    """In a pipe, with the command that works there."""
    result = invoke()
    assert result.exit_code == 1
    assert "omlx-tui serve" in result.stderr


def test_a_taken_port_is_one_line() -> None:
    """No traceback: which address, and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = invoke("serve", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert "is taken by another process" in result.stderr
    assert "Traceback" not in result.output + result.stderr


def test_an_unknown_pin_names_its_neighbours() -> None:
    """As everywhere."""
    result = invoke("serve", "--port", "0", "--pin", "llama")
    assert result.exit_code == 1
    assert "Did you mean llama-1m-fp32" in result.stderr


def test_an_address_beyond_loopback_is_refused() -> None:
    """This version has no tokens to keep strangers out."""
    result = invoke("serve", "--host", "0.0.0.0")  # noqa: S104 - refused
    assert result.exit_code == 1
    assert "not a loopback address" in result.stderr


async def test_a_prompt_streams_to_standard_output() -> None:
    """The answer and nothing else; from an argument or from standard input."""
    async with serving(FakePool("fake")) as gateway:
        for text, given in (("Hello!", None), ("-", "Hello!")):
            result = await asyncio.to_thread(
                invoke, "prompt", "--url", gateway.url, text, input=given
            )
            assert result.exit_code == 0
            assert result.stdout.strip()


async def test_a_refused_prompt_is_one_line_on_stderr() -> None:
    """Exit code 1, and the message of the host."""
    async with serving(FakePool("fake")) as gateway:
        result = await asyncio.to_thread(
            invoke, "prompt", "--url", gateway.url, "-m", "nobody", "Hello!"
        )
    assert result.exit_code == 1
    assert "nobody" in result.stderr
    assert result.stdout == ""


def test_a_prompt_without_a_host_says_how_to_start_one() -> None:
    """The URL that was tried, and the command."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = invoke("prompt", "--url", f"ws://127.0.0.1:{port}", "Hello!")
    assert result.exit_code == 1
    assert str(port) in result.stderr
    assert "omlx-tui" in result.stderr


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A headless host as its own process, and its URL."""
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line, hint = process.stdout.readline(), process.stdout.readline()
    assert "listens on" in line
    assert "omlx-tui prompt" in hint
    yield process, line.split()[-1]
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_and_ends_clean(
    server: tuple[subprocess.Popen[str], str], number: signal.Signals
) -> None:
    """A prompt from another process; then a signal: exit code 0, nothing but log lines."""
    process, url = server
    command = [
        *PROGRAM,
        "prompt",
        "--url",
        url,
        "-m",
        "qwen3-1m-8bit",
        "--max-tokens",
        "8",
        "Hello!",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert answer.stdout.strip()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "event=host_closed" in stderr
    assert "Traceback" not in stderr
