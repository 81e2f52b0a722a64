"""Settings: who is stronger, what is refused and in which words, what the pool is told."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlx_tui import locations
from omlx_tui.engines.types import SamplingParams, SchedulerConfig
from omlx_tui.pool.options import ModelOptions, PoolOptions
from omlx_tui.settings import (
    HostSettings,
    InvalidSettingsError,
    ModelSettings,
    OriginKind,
    SchedulerSettings,
    load_settings,
)
from omlx_tui.settings.example import example_toml
from omlx_tui.settings.report import rows
from omlx_tui.settings.values import (
    format_duration,
    format_size,
    format_ttl,
    parse_duration,
    parse_ttl,
)
from omlx_tui.sizes import Budget, parse_size


@pytest.fixture(autouse=True)
def _nothing_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("OMLX_TUI_"):
            monkeypatch.delenv(name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    files = (Path("omlx-tui.toml"), tmp_path / "config" / "omlx-tui.toml")
    monkeypatch.setattr(locations, "config_files", lambda: files)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Make a settings file of that text."""

    def write(text: str) -> Path:
        file = tmp_path / "my.toml"
        file.write_text(text)
        return file

    return write


def problems(flags: dict[str, object] | None = None, file: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(InvalidSettingsError) as caught:
        load_settings(flags, file)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each value alone, and each value knows who set it."""
    file = write('port = 1\nhost = "::1"\npin = ["a"]\nmax_waiting = 3')
    monkeypatch.setenv("OMLX_TUI_PORT", "2")
    monkeypatch.setenv("OMLX_TUI_HOST", "127.0.0.2")
    loaded = load_settings({"port": 3}, file)
    settings = loaded.settings
    assert (settings.port, settings.host, settings.pin) == (3, "127.0.0.2", ("a",))
    assert settings.drain_s == 5
    assert str(loaded.origin_of("port")) == "--port"
    assert str(loaded.origin_of("host")) == "OMLX_TUI_HOST"
    assert str(loaded.origin_of("pin")) == str(file)
    assert loaded.origin_of("drain_s").kind is OriginKind.DEFAULT
    assert loaded.flags == {"port"}


def test_constructed_directly_it_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test or a program that builds a host gets what it wrote and the defaults."""
    monkeypatch.setenv("OMLX_TUI_PORT", "2")
    Path("omlx-tui.toml").write_text("port = 3")
    assert HostSettings().port == HostSettings.model_fields["port"].default


def test_the_first_file_that_exists_is_read_alone(tmp_path: Path) -> None:
    """The one named, else the one here, else the one of the user; they are not mixed."""
    user = tmp_path / "config" / "omlx-tui.toml"
    user.parent.mkdir()
    assert load_settings().file is None
    user.write_text("port = 1\nmax_waiting = 9")
    assert load_settings().settings.port == 1
    Path("omlx-tui.toml").write_text("port = 2")
    loaded = load_settings()
    assert (loaded.settings.port, loaded.settings.max_waiting) == (2, 64)
    named = tmp_path / "named.toml"
    named.write_text("port = 3")
    assert load_settings(config_file=named).settings.port == 3


def test_tables_are_merged_key_by_key(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable for one key of a table leaves the others as the file has them."""
    file = write(
        "[scheduler]\nmax_batch_size = 4\nprefill_batch_size = 2\n"
        '[model."org/a"]\nttl = "10m"\npin = true'
    )
    monkeypatch.setenv("OMLX_TUI_SCHEDULER__MAX_BATCH_SIZE", "3")
    monkeypatch.setenv("OMLX_TUI_MODEL", '{"org/a": {"pin": false}}')
    loaded = load_settings(config_file=file)
    assert loaded.settings.scheduler == SchedulerConfig(max_batch_size=3, prefill_batch_size=2)
    assert loaded.settings.model == {"org/a": ModelSettings(ttl="10m", pin=False)}
    variable = "OMLX_TUI_SCHEDULER__MAX_BATCH_SIZE"
    assert str(loaded.origin_of("scheduler", "max_batch_size")) == variable
    assert str(loaded.origin_of("scheduler", "prefill_batch_size")) == str(file)
    assert str(loaded.origin_of("model", "org/a", "pin")) == "OMLX_TUI_MODEL"
    assert str(loaded.origin_of("model", "org/a", "ttl")) == str(file)


def test_lists_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with commas, folders as in PATH; an empty variable is none."""
    monkeypatch.setenv("OMLX_TUI_PIN", "a, b,")
    monkeypatch.setenv("OMLX_TUI_MODELS", os.pathsep.join(("/one", "~/two")))
    monkeypatch.setenv("OMLX_TUI_PORT", "")
    settings = load_settings().settings
    assert settings.pin == ("a", "b")
    assert settings.models == (Path("/one"), Path.home() / "two")
    assert settings.port == HostSettings().port


def test_paths_in_a_file_start_at_its_folder(write: Callable[[str], Path], tmp_path: Path) -> None:
    """The file means the same wherever the program is started; flags start where one is."""
    file = write('models = ["m", "/abs", "~/x"]\njournal_file = "j.jsonl"')
    settings = load_settings(config_file=file).settings
    assert settings.models == (tmp_path / "m", Path("/abs"), Path.home() / "x")
    assert settings.journal_path == tmp_path / "j.jsonl"
    assert load_settings({"models": [Path("m")]}).settings.models == (Path("m"),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", "There is no setting prot. Did you mean port?"),
        ("temperature = 1", 'no setting temperature. It belongs in [model."its id"].'),
        ("[scheduler]\nport = 1", "setting scheduler.port. It belongs above the first [table]."),
        ("[model.a]\ntll = 1", "There is no setting model.a.tll. Did you mean ttl?"),
        ('[model."o/a"]\ntop_p = 2', 'model."o/a".top_p: Input should be less than or equal to 1'),
        ("port = 70000", "port: Input should be less than or equal to 65535. It is 70000."),
        ('max_model_memory = "x"', "max_model_memory: 'x' is no size. Write 6MB"),
        ("max_model_memory = true", "max_model_memory: True is no size. Write 6MB"),
        ('ttl = "soon"', "ttl: 'soon' is no length of time. Write 90s, 10m"),
        ("ttl = 0", "ttl: 0 says neither at once nor never. Write never"),
        ("ttl = true", "ttl: True is no length of time"),
        ("load_timeout = 0", "load_timeout: Input should be greater than 0"),
        ('headroom_share = "x%"', "headroom_share: 'x%' is no share. Write 25%"),
        ('buffer_cache_limit = "10%"', "'10%' is a share. Write a size such as 512MB, 0 or auto."),
        ('journal_max_size = "0"', "journal_max_size: '0' is no size"),
        ("pin = 3", 'pin: Write a list such as ["one", "two"]. It is 3.'),
        ("pin = [3]", "pin[0]: Input should be a valid string. It is 3."),
        ("scheduler = 3", "scheduler: Write a table. It is 3."),
        ("[scheduler]\nmax_batch_size = 0", "scheduler.max_batch_size: Input should be greater"),
        ("[models.a]\npin = true", "models: This is the list of folders"),
        ("soft_mark = 0.96", "soft_mark (0.96) has to be below hard_mark (0.95)."),
        ('[model.a]\nalias = ["x"]\n[model.b]\nalias = ["x"]', "alias 'x' is both a's and b's"),
        ("port = ", "This is no TOML: Invalid value"),
        ("port = 1\nport = 2\n", "line 2, column 9"),
    ],
)
def test_a_fault_in_the_file_is_one_line_that_names_it(
    write: Callable[[str], Path], text: str, says: str
) -> None:
    """The file, the key, and what would be right."""
    file = write(text)
    (problem,) = problems(file=file)
    assert problem.startswith(f"{file}: ")
    assert says in problem


def test_all_faults_are_told_at_once(write: Callable[[str], Path]) -> None:
    """Nobody mends a file one start at a time."""
    assert len(problems(file=write("prot = 1\nport = -1\nhost = 3"))) == 3


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, a folder, or no text: said in words."""
    assert problems(file=tmp_path / "no.toml") == (
        f"{tmp_path / 'no.toml'}: There is no such file.",
    )
    assert problems(file=tmp_path) == (f"{tmp_path}: This is not a file.",)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert problems(file=binary) == (f"{binary}: This is not written in UTF-8.",)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("OMLX_TUI_PORT", "tcp://10.0.0.1:80", "port: Input should be a valid integer"),
        ("OMLX_TUI_TTL", "soon", "ttl: 'soon' is no length of time"),
        ("OMLX_TUI_SCHEDULER__MAX_BATCH_SIZE", "0", "scheduler.max_batch_size: Input should"),
        ("OMLX_TUI_SCHEDULER__MAX_BATCH", "1", "Did you mean max_batch_size?"),
        ("OMLX_TUI_MODEL", "{", "This is no JSON."),
    ],
)
def test_a_bad_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    """Not the field alone: the variable is what has to be changed."""
    monkeypatch.setenv(variable, value)
    (problem,) = problems()
    assert problem.startswith(f"{variable}: ")
    assert says in problem


def test_an_unknown_variable_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster sets OMLX_TUI_SERVICE_HOST for a service of that name: no reason not to start."""
    monkeypatch.setenv("OMLX_TUI_PROT", "1")
    assert load_settings().warnings == (
        "OMLX_TUI_PROT: There is no setting prot. Did you mean port?",
    )


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("10m", 600),
        ("90s", 90),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("2D", 172800),
        ("500ms", 0.5),
        ("42", 42),
        (42, 42),
        (0.5, 0.5),
    ],
)
def test_times_as_people_write_them(written: object, seconds: float) -> None:
    """With units, or in seconds."""
    assert parse_duration(written) == seconds


@pytest.mark.parametrize("written", ["", "m", "-1s", -1, "nan", "inf", True, None, "1x", "1m x"])
def test_what_is_no_time(written: object) -> None:
    """It is refused, with an example."""
    with pytest.raises(ValueError, match="Write 90s, 10m"):
        parse_duration(written)


@given(milliseconds=st.integers(0, 10**10))
def test_a_time_reads_back_as_it_was_written(milliseconds: int) -> None:
    """To the millisecond; a time to live too, where nothing is never."""
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=0.0006)
    assert parse_ttl(format_ttl(seconds)) == pytest.approx(seconds, abs=0.0006)


@given(size=st.integers(1, 2**50))
def test_a_size_reads_back_as_it_was_written(size: int) -> None:
    """Not a byte is lost."""
    assert parse_size(format_size(size)) == size
    assert parse_size(format_size(size * 2**20)) == size * 2**20


def test_what_the_pool_is_told(write: Callable[[str], Path]) -> None:
    """Every setting of the pool and of single models arrives in its options."""
    file = write(
        'headroom_share = "30%"\nttl = "1h"\nmax_waiting = 5\nload_timeout = 7\n'
        'drain_timeout = "2s"\npin = ["a"]\n'
        '[model.b]\nttl = "never"\npin = true\nalias = ["x", "y"]\ncontext_limit = 9\n'
        "temperature = 0.5\ntop_p = 0.6\ntop_k = 7\nmin_p = 0.1"
    )
    settings = load_settings(config_file=file).settings
    options = settings.pool_options()
    own = ModelOptions(
        ttl_s=0,
        context_tokens=9,
        sampling=SamplingParams(temperature=0.5, top_p=0.6, top_k=7, min_p=0.1),
    )
    assert (options.headroom_share, options.ttl_s, options.max_waiting) == (0.3, 3600, 5)
    assert (options.load_timeout_s, options.drain_timeout_s) == (7, 2)
    assert options.of("b") == own
    assert options.of("a") == ModelOptions()
    assert settings.pins == ("a", "b")
    assert settings.aliases == {"x": "b", "y": "b"}


def test_the_defaults_are_the_rooms_own() -> None:
    """Nothing set changes nothing."""
    settings = HostSettings()
    assert settings.pool_options() == PoolOptions()
    assert settings.scheduler == SchedulerConfig()
    assert settings.pins == ()


def test_a_ready_scheduler_config_passes_as_it_is() -> None:
    """Also with what can't be set from outside."""
    config = SchedulerConfig(max_batch_size=2)
    assert HostSettings(scheduler=config).scheduler is config


def test_what_the_engines_are_told() -> None:
    """The caches' settings join the scheduler's; what is not set leaves a ready config alone."""
    ready = SchedulerConfig(prefix_cache=False, buffer_cache_limit_bytes=5)
    assert HostSettings().scheduler_config() == SchedulerConfig()
    assert HostSettings(scheduler=ready).scheduler_config() == ready
    settings = HostSettings(
        scheduler={"max_batch_size": 2}, prefix_cache=False, buffer_cache_limit="1MB"
    )
    assert settings.scheduler_config() == SchedulerConfig(
        max_batch_size=2, prefix_cache=False, buffer_cache_limit_bytes=10**6
    )
    assert HostSettings(buffer_cache_limit=0).scheduler_config().buffer_cache_limit_bytes == 0


def test_no_cache_and_no_journal_can_be_written() -> None:
    """0 is a limit, and false is no file."""
    settings = HostSettings(buffer_cache_limit=0, journal=False)
    assert settings.buffer_cache_limit == Budget("0", size_bytes=0)
    assert settings.journal_path is None
    assert HostSettings().journal_path == locations.journal_file()


@pytest.mark.parametrize("table", [HostSettings, ModelSettings, SchedulerSettings])
def test_a_sentence_under_each_field(table: type[HostSettings]) -> None:
    """The help, the example and the listing are made of them."""
    for name, field in table.model_fields.items():
        assert (field.description or "").endswith("."), name


def test_the_example_is_the_defaults(write: Callable[[str], Path]) -> None:
    """As it is, and without the # before each default."""
    text = example_toml()
    assert tomllib.loads(text) == {}
    assert load_settings(config_file=write(text)).settings == HostSettings()
    active = re.sub(r"^#(?=[a-z\[])", "", text, flags=re.MULTILINE)
    loaded = load_settings(config_file=write(active))
    assert loaded.settings == HostSettings()
    assert loaded.origin_of("scheduler", "max_batch_size").kind is OriginKind.FILE


def test_the_examples_in_the_example_are_valid(write: Callable[[str], Path]) -> None:
    """Whoever takes the # away from one gets a file that is read."""
    lines = re.findall(r"^# ?((?:\w+ = .*)|\[.*\])$", example_toml(), flags=re.MULTILINE)
    settings = load_settings(config_file=write("\n".join(lines))).settings
    assert settings.max_model_memory == Budget.parse("24GB")
    own = settings.model["org/name"]
    assert own.model_fields_set == set(ModelSettings.model_fields)


def test_a_listing_has_every_setting(write: Callable[[str], Path]) -> None:
    """Tables are spread out; of a single model only what is set."""
    listed = {
        row.key: row for row in rows(load_settings(config_file=write('[model."o/a"]\nttl = 90')))
    }
    plain = set(HostSettings.model_fields) - {"scheduler", "model"}
    assert plain <= set(listed)
    assert listed["scheduler.load_slice_bytes"].value == "32MiB"
    assert listed['model."o/a".ttl'].value == "1m30s"
    assert 'model."o/a".pin' not in listed
