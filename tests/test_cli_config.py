"""``omlx-tui config``, and what a wrong setting looks like in a shell."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omlx_tui import locations
from omlx_tui.cli import app
from omlx_tui.state import StateFile
from tests.model_folders import write_model

runner = CliRunner()


def invoke(*args: str) -> object:
    return runner.invoke(app, list(args))


@pytest.fixture(autouse=True)
def state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing from outside: neither files nor variables; returns where the state is."""
    for name in list(os.environ):
        if name.upper().startswith("OMLX_TUI_"):
            monkeypatch.delenv(name)
    state_file = tmp_path / "state" / "state.json"
    monkeypatch.setattr(locations, "config_files", lambda: (Path("omlx-tui.toml"),))
    monkeypatch.setattr(locations, "state_file", lambda: state_file)
    monkeypatch.chdir(tmp_path)
    return state_file


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "my.toml"
        file.write_text(text)
        return file

    return write


def test_each_value_and_where_it_came_from(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flag, variable, file, default; in columns."""
    file = write('max_waiting = 3\n[model."o/a"]\nttl = 90')
    monkeypatch.setenv("OMLX_TUI_HOST", "::1")
    result = invoke("config", "--config", str(file), "--port", "9", "--pin", "a", "--no-demo")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    cells = {line.split()[0]: line.split(maxsplit=2)[1:] for line in lines}
    assert cells["port"] == ["9", "--port"]
    assert cells["pin"] == ['["a"]', "--pin"]
    assert cells["demo"] == ["false", "--demo"]
    assert cells["host"] == ["::1", "OMLX_TUI_HOST"]
    assert cells["max_waiting"] == ["3", str(file)]
    assert cells['model."o/a".ttl'] == ["1m30s", str(file)]
    assert cells["ttl"] == ["never", "default"]
    column = lines[0].index("FROM")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines)


def test_the_same_for_programs(write: Callable[[str], Path]) -> None:
    """Values as JSON has them, the kind of the source and its place."""
    file = write("max_waiting = 3")
    facts = json.loads(invoke("config", "--config", str(file), "--port", "9", "--json").stdout)
    assert facts["file"] == str(file)
    assert facts["settings"]["port"] == {"value": 9, "source": "flag", "where": "--port"}
    assert facts["settings"]["max_waiting"] == {"value": 3, "source": "file", "where": str(file)}
    assert facts["settings"]["ttl"] == {"value": "never", "source": "default", "where": None}


def test_what_the_console_changed_is_shown(state_file: Path) -> None:
    """It wins over the settings, so it must not be hidden; unless a flag wins over it."""
    StateFile(state_file).change(
        lambda state: state.with_pin("o/a", is_pinned=False).with_ttl("b", 0).with_budget(6 * 10**6)
    )
    facts = json.loads(invoke("config", "--json").stdout)
    assert facts["remembered"] == {
        "file": str(state_file),
        "values": {'model."o/a".pin': False, "model.b.ttl": "never", "max_model_memory": "6MB"},
    }
    assert f"the console, in {state_file}" in invoke("config").stdout
    facts = json.loads(invoke("config", "--json", "--max-model-memory", "7MB").stdout)
    assert "max_model_memory" not in facts["remembered"]["values"]


def test_a_state_that_makes_no_sense_does_not_spoil_the_output(state_file: Path) -> None:
    """The warning goes to stderr."""
    state_file.parent.mkdir()
    state_file.write_text("{")
    result = invoke("config", "--json")
    assert json.loads(result.stdout)["remembered"]["values"] == {}
    assert "state.json.bad" in result.stderr


def test_the_example_goes_into_a_file_as_it_is() -> None:
    """``omlx-tui config --example > omlx-tui.toml`` changes nothing yet."""
    result = invoke("config", "--example")
    assert tomllib.loads(result.stdout) == {}
    Path("omlx-tui.toml").write_text(result.stdout)
    assert invoke("config").exit_code == 0


@pytest.mark.parametrize("command", [("serve",), ("config",), ("models",)])
def test_wrong_settings_are_one_line_each(write: Callable[[str], Path], command: object) -> None:
    """On stderr, with exit code 1 and without a traceback, whatever the command."""
    file = write("prot = 1\nport = 70000\n")
    result = invoke(*command, "--config", str(file))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"omlx-tui: {file}: port: Input should be less than or equal to 65535. It is 70000.",
        f"omlx-tui: {file}: There is no setting prot. Did you mean port?",
    ]


def test_an_unknown_variable_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs."""
    monkeypatch.setenv("OMLX_TUI_PROT", "1")
    result = invoke("config", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)
    assert "OMLX_TUI_PROT: There is no setting prot. Did you mean port?" in result.stderr


@pytest.mark.parametrize("value", ["soon", "0"])
def test_a_wrong_ttl_flag_is_a_usage_error(value: str) -> None:
    """Exit code 2, as for every other flag."""
    result = invoke("config", "--ttl", value)
    assert result.exit_code == 2
    assert "10m" in result.stderr


def test_a_settings_file_names_the_folders(tmp_path: Path, write: Callable[[str], Path]) -> None:
    """``models`` lists what ``serve`` would serve with the same file; a flag takes its place."""
    write_model(tmp_path / "one" / "a", weights_bytes=4000)
    write_model(tmp_path / "two" / "b", weights_bytes=4000)
    file = write('models = ["one"]')
    listed = json.loads(invoke("models", "--config", str(file), "--json").stdout)
    assert [fact["id"] for fact in listed] == ["a"]
    flags = ("--config", str(file), "--models", "two")
    listed = json.loads(invoke("models", *flags, "--json").stdout)
    assert [fact["id"] for fact in listed] == ["b"]


def test_settings_are_options_of_the_command_only() -> None:
    """``omlx-tui --config x serve`` would otherwise not read the file."""
    result = invoke("--config", "x", "serve")
    assert result.exit_code == 2
    assert "write --config behind the command" in " ".join(result.stderr.replace("│", " ").split())
