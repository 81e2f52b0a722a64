"""How a command fails: one line per fault on stderr, exit code 1, no traceback."""

from __future__ import annotations

from typing import NoReturn

import typer

# Room for two long paths.
_MAX_LENGTH = 2000


class errors_as_one_line:  # noqa: N801 - reads as a statement where it is used
    """Turn what an operator can mend into a line on stderr and exit code 1."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        from omlx_tui.engines.errors import EngineError
        from omlx_tui.gateway.errors import EndpointError
        from omlx_tui.pool.errors import PoolError
        from omlx_tui.settings import InvalidSettingsError

        if isinstance(error, OSError | PoolError | EngineError | EndpointError):
            fail(str(error))
        if isinstance(error, InvalidSettingsError):
            fail(*error.problems)


def fail(*messages: str) -> NoReturn:
    warn(*messages)
    raise typer.Exit(1)


def warn(*messages: str) -> None:
    from omlx_tui.console.safe_text import safe_str

    for message in messages:
        typer.echo(f"omlx-tui: {safe_str(message, max_length=_MAX_LENGTH)}", err=True)
