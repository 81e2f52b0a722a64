"""The options that several commands share, and which of them were given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omlx_tui.sizes import Budget


def _parse_budget(text: str) -> Budget:
    try:
        return Budget.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _check_ttl(text: str | None) -> str | None:
    # Settings bring pydantic, which no other option needs.
    from omlx_tui.settings.values import parse_ttl

    if text is None:
        return None
    try:
        parse_ttl(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return text


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
PreloadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--preload", metavar="MODEL", help="Load this model at the start; may be given again."
    ),
]
TtlOption = Annotated[
    str | None,
    typer.Option(
        "--ttl",
        metavar="TIME",
        callback=_check_ttl,
        help="Unload a model after this long without a request: 10m, 1h30m or never.",
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", help="The address the endpoint listens on. Default: 127.0.0.1."),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, help="Its port; 0 lets the system choose. Default: 8765."
    ),
]
DemoOption = Annotated[
    bool | None,
    typer.Option("--demo/--no-demo", help="Start with made-up requests running, to see evictions."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings. Without it: ./omlx-tui.toml, else the one in your configuration folder.",
    ),
]
LogFileOption = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Where the log goes.", dir_okay=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


def given_options(context: typer.Context) -> dict[str, object]:
    """What was written on the command line this time, by parameter name; no defaults."""
    return {
        name: value
        for name, value in context.params.items()
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    }
