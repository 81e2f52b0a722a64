"""The commands. Each imports what it needs when it runs, so that the others start at once."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from omlx_tui import __version__, locations
from omlx_tui.client import DEFAULT_PORT, DEFAULT_URL
from omlx_tui.sizes import Budget, format_bytes

if TYPE_CHECKING:
    from omlx_tui.pool.discovery import FoundModel
    from omlx_tui.settings import HostSettings

app = typer.Typer(
    add_completion=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Serve more MLX models than fit into memory, and watch them come and go.",
)


def _parse_budget(text: str) -> Budget:
    try:
        return Budget.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


ModelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--models",
        metavar="DIR",
        help="A folder that holds models; may be given again. Without it: the sample models.",
    ),
]
BudgetOption = Annotated[
    Budget | None,
    typer.Option(
        "--max-model-memory",
        metavar="SIZE",
        parser=_parse_budget,
        help="The budget for all resident models: 6MB, 4GB, 1.5GiB, 60% or auto "
        "(MB = 10⁶, MiB = 2²⁰). Default: auto; 8MB for the sample models.",
    ),
]
PinOption = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="MODEL", help="Never evict this model; may be given again."),
]
HostOption = Annotated[str, typer.Option("--host", help="The address the endpoint listens on.")]
PortOption = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Its port; 0 lets the system choose.")
]
LogFileOption = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Where the log goes.", dir_okay=False),
]
DemoOption = Annotated[
    bool, typer.Option("--demo", help="Start with made-up requests running, to see evictions.")
]


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
    host: HostOption = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    log_file: LogFileOption = None,
    demo: DemoOption = False,
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
        _fail("The console needs a terminal. Without one, use: omlx-tui serve")
    from omlx_tui.session import run_console

    settings = _settings(models, max_model_memory, pin, host, port, demo)
    with _errors_as_one_line():
        run_console(settings, log_file or locations.log_file(), theme=theme)


@app.command()
def serve(
    models: ModelsOption = None,
    max_model_memory: BudgetOption = None,
    pin: PinOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    log_file: LogFileOption = None,
    demo: DemoOption = False,
) -> None:
    """Serve without a console, until SIGTERM or Ctrl+C."""
    from omlx_tui.logs import configure_logging

    settings = _settings(models, max_model_memory, pin, host, port, demo)
    with _errors_as_one_line():
        configure_logging(log_file)
        asyncio.run(_serve(settings))


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

    question = sys.stdin.read() if text == "-" else text
    answer = print_answer(
        url, question, model=model, max_tokens=max_tokens, temperature=temperature, seed=seed
    )
    raise typer.Exit(_run_until_interrupted(answer))


@app.command("models")
def list_models(
    models: ModelsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List what is found, how large it will be, and why something can't be served."""
    from omlx_tui.engines.device import expects_cpu
    from omlx_tui.pool.discovery import find_models
    from omlx_tui.settings import HostSettings

    settings = HostSettings(models=tuple(models or ()))
    raise_to_fp32 = settings.scheduler.raise_to_fp32_on_cpu and expects_cpu()
    found: list[FoundModel] = []
    with _errors_as_one_line():
        for root in settings.roots:
            found += find_models(root, raise_to_fp32=raise_to_fp32)
    if as_json:
        typer.echo(json.dumps([_as_facts(model) for model in found], indent=2))
    else:
        _print_models(found, settings.roots)


async def _serve(settings: HostSettings) -> None:
    from omlx_tui.host import EngineHost

    host = EngineHost(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    try:
        await host.start()
        typer.echo(f"omlx-tui listens on {host.gateway.url}")
        typer.echo(f'Try: omlx-tui prompt --url {host.gateway.url} "Tell me a story about a fox."')
        sys.stdout.flush()
        await stop.wait()
    finally:
        await host.close()


def _settings(
    models: list[Path] | None,
    max_model_memory: Budget | None,
    pin: list[str] | None,
    host: str,
    port: int,
    demo: bool,
) -> HostSettings:
    from omlx_tui.settings import HostSettings

    return HostSettings(
        models=tuple(models or ()),
        max_model_memory=max_model_memory,
        pin=tuple(pin or ()),
        host=host,
        port=port,
        demo=demo,
    )


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


class _errors_as_one_line:  # noqa: N801 - reads as a statement where it is used
    """Turn what an operator can mend into one line on stderr and exit code 1."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        from omlx_tui.engines.errors import EngineError
        from omlx_tui.gateway.errors import EndpointError
        from omlx_tui.pool.errors import PoolError

        if isinstance(error, OSError | PoolError | EngineError | EndpointError):
            _fail(str(error))


def _fail(message: str) -> NoReturn:
    typer.echo(f"omlx-tui: {message}", err=True)
    raise typer.Exit(1)


def _as_facts(model: FoundModel) -> dict[str, object]:
    return {
        "id": model.model_id,
        "path": str(model.path),
        "model_type": model.model_type,
        "weights_bytes": model.weights_bytes,
        "is_servable": not model.problem,
        "problem": model.problem or None,
    }


def _print_models(found: Iterable[FoundModel], roots: Iterable[Path]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from omlx_tui.console.safe_text import safe_str

    rows = list(found)
    if not rows:
        folders = ", ".join(str(root) for root in roots)
        typer.echo(f"No models in {folders}. Name another folder with --models DIR.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("MODEL", "TYPE", "WEIGHTS", "STATUS"):
        table.add_column(heading, justify="right" if heading == "WEIGHTS" else "left")
    for model in rows:
        cells = (
            safe_str(model.model_id),
            safe_str(model.model_type) or "–",
            format_bytes(model.weights_bytes) if model.weights_bytes else "–",
            safe_str(model.problem) or "servable",
        )
        table.add_row(*(Text(cell) for cell in cells))
    Console(soft_wrap=True).print(table)
