"""An operator's session at a terminal: log, host, screen, and their end in the right order."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import structlog

from omlx_tui.console.app import ConsoleApp
from omlx_tui.host import assemble_host
from omlx_tui.local import HostThread
from omlx_tui.logs import configure_logging
from omlx_tui.settings import LoadedSettings
from omlx_tui.terminal import reserved_for_console

_log = structlog.get_logger(__name__)


def run_console(loaded: LoadedSettings, log_file: Path, *, theme: str | None = None) -> None:
    """Start a host, draw it until the operator quits, then stop it.

    Raises what ``EngineHost.start`` raises, before the screen is touched.
    """
    log_stream = configure_logging(log_file)
    host = HostThread(assemble_host(loaded))
    host.start()
    try:
        with reserved_for_console(log_stream):
            asyncio.run(_draw(ConsoleApp(host, theme=theme)))
    finally:
        # The screen is the operator's again by now: what runs out is said in words.
        if host.has_live_requests():
            print("Ending the running requests …")  # noqa: T201
        host.close()


async def _draw(app: ConsoleApp) -> None:
    """Draw until somebody quits, the terminal goes away or the system asks to end.

    Textual leaves these signals to the system, which would end the process with the alternate
    screen and the mouse still on.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, app.exit)
    await app.run_async()
