"""Why the endpoint could not be opened. Each message is one line for the operator."""

from __future__ import annotations


class EndpointError(Exception):
    """The endpoint can't listen where it was told to."""


class EndpointInUseError(EndpointError):
    """Somebody else listens there already."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        super().__init__(
            f"{host}:{port} is taken by another process, perhaps another omlx-tui. "
            "Choose another one with --port, or stop the process that listens there."
        )


class EndpointUnusableError(EndpointError):
    """The system does not let this process listen there."""

    def __init__(self, host: str, port: int, cause: Exception) -> None:
        self.host = host
        self.port = port
        reason = (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
        super().__init__(f"Can't listen on {host}:{port}: {reason.rstrip('.')}.")


class UnsafeBindError(EndpointError):
    """The address could be reached from other machines, and nothing would ask who calls."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"{host or 'every interface'!s} is not a loopback address, and this version has no "
            "tokens to keep strangers out. Use --host 127.0.0.1 and an SSH tunnel."
        )
