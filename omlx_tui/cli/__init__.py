"""The commands. Each imports what it needs when it runs, so that the others start at once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omlx_tui import __version__, locations
from omlx_tui.cli.failing import errors_as_one_line, fail, warn
from omlx_tui.cli.options import (
    BudgetOption,
    ConfigOption,
    DemoOption,
    HostOption,
    JsonOption,
    LogFileOption,
    ModelsOption,
    PinOption,
    PortOption,
    PreloadOption,
    TtlOption,
    given_options,
)
from omlx_tui.client import DEFAULT_URL

if TYPE_CHECKING:
    from omlx_tui.settings import LoadedSettings

app = typer.Typer(
    add_completion=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Serve more MLX models than fit into memory, and watch them come and go.",
)


def main() -> None:
    """The program."""
    app()


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"omlx-tui {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def console(
    context: typer.Context,
    models: ModelsOption = None,
    max_model_memory: BudgetOption = None,
    pin: PinOption = None,
    preload: PreloadOption = None,
    ttl: TtlOption = None,
    host: HostOption = None,
    port: PortOption = None,
    demo: DemoOption = None,
    config: ConfigOption = None,
    log_file: LogFileOption = None,
    theme: Annotated[str | None, typer.Option("--theme", help="The console's colours.")] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Serve more MLX models than fit into memory, and watch them come and go.

    Without a command: the console, with the host in the same process.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced_options(context)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("The console needs a terminal. Without one, use: omlx-tui serve")
    from omlx_tui.session import run_console

    with errors_as_one_line():
        loaded = _load(context, config)
        run_console(loaded, log_file or locations.log_file(), theme=theme)


@app.command()
def serve(
    context: typer.Context,
    models: ModelsOption = None,
    max_model_memory: BudgetOption = None,
    pin: PinOption = None,
    preload: PreloadOption = None,
    ttl: TtlOption = None,
    host: HostOption = None,
    port: PortOption = None,
    demo: DemoOption = None,
    config: ConfigOption = None,
    log_file: LogFileOption = None,
) -> None:
    """Serve without a console, until SIGTERM or Ctrl+C."""
    from omlx_tui.logs import configure_logging

    with errors_as_one_line():
        loaded = _load(context, config)
        configure_logging(log_file)
        asyncio.run(_serve(loaded))


@app.command()
def prompt(
    text: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Which model; else the host chooses.")
    ] = None,
    url: Annotated[str, typer.Option("--url", help="The host's endpoint.")] = DEFAULT_URL,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="The longest answer.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.0, max=2.0, help="0 is greedy.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="For the same answer.")] = None,
) -> None:
    """Send a prompt to a running host and stream the answer."""
    from omlx_tui.asking import print_answer

    question = text
    if text == "-":
        question = sys.stdin.buffer.read().decode("utf-8", errors="replace")
    answer = print_answer(
        url, question, model=model, max_tokens=max_tokens, temperature=temperature, seed=seed
    )
    raise typer.Exit(_run_until_interrupted(answer))


@app.command("models")
def list_models(
    context: typer.Context,
    models: ModelsOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what is found, how large it will be, and why something can't be served."""
    from omlx_tui.cli.showing import show_models
    from omlx_tui.engines.device import expects_cpu
    from omlx_tui.pool.catalogue import Catalogue

    with errors_as_one_line():
        settings = _load(context, config).settings
        raise_to_fp32 = settings.scheduler.raise_to_fp32_on_cpu and expects_cpu()
        catalogue = Catalogue(settings.pool_options(), raise_to_fp32=lambda: raise_to_fp32)
        for root in settings.roots:
            catalogue.add_root(root)
    discovery = catalogue.look()
    warn(*(f"{warning.path}: {warning.reason}" for warning in discovery.warnings))
    show_models(list(discovery.models.values()), settings.roots, as_json=as_json)


@app.command("config")
def show_config(
    context: typer.Context,
    models: ModelsOption = None,
    max_model_memory: BudgetOption = None,
    pin: PinOption = None,
    preload: PreloadOption = None,
    ttl: TtlOption = None,
    host: HostOption = None,
    port: PortOption = None,
    demo: DemoOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    example: Annotated[
        bool, typer.Option("--example", help="Print a commented omlx-tui.toml instead.")
    ] = False,
) -> None:
    """Show each setting, its value and where it comes from."""
    from omlx_tui.cli.showing import show_settings
    from omlx_tui.settings.example import example_toml
    from omlx_tui.state import StateFile

    if example:
        typer.echo(example_toml(), nl=False)
        return
    with errors_as_one_line():
        loaded = _load(context, config)
    state_file = locations.state_file()
    state = StateFile(state_file, warn=warn).read().yielding_to(loaded.flags)
    show_settings(loaded, state, state_file, as_json=as_json)


async def _serve(loaded: LoadedSettings) -> None:
    from omlx_tui.host import assemble_host

    host = assemble_host(loaded)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    try:
        await host.start()
        with suppress(OSError):  # nobody may be reading: no reason not to serve
            url = host.gateway.url
            typer.echo(f"omlx-tui listens on {url}")
            typer.echo(f'Try: omlx-tui prompt --url {url} "Tell me a story about a fox."')
            sys.stdout.flush()
        await stop.wait()
    finally:
        await host.close()


def _load(context: typer.Context, config: Path | None) -> LoadedSettings:
    """All sources; the flags are the options of that name that were given this time."""
    from omlx_tui.settings import HostSettings, load_settings

    flags = {
        name: value
        for name, value in given_options(context).items()
        if name in HostSettings.model_fields
    }
    loaded = load_settings(flags, config)
    warn(*loaded.warnings)
    return loaded


def _refuse_misplaced_options(context: typer.Context) -> None:
    """``omlx-tui --port 1 serve`` would otherwise listen elsewhere than it was told."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            raise typer.BadParameter(
                f"write {option} behind the command: omlx-tui {context.invoked_subcommand} {option}"
            )


def _run_until_interrupted(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end; Ctrl+C closes the connection, which cancels the request."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        return 130
