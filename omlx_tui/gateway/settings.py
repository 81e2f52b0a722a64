"""The endpoint's limits and deadlines, with the reason beside each figure that needs one."""

from __future__ import annotations

from dataclasses import dataclass, field

from omlx_tui.gateway.lanes import LaneLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Defaults suit a host on loopback.

    Attributes:
        max_message_bytes: the longest frame a client may send.
        max_unread_frames: frames of a client that are held before its socket is left unread.
        ping_interval_s: pause between keepalive pings.
        ping_timeout_s: how long a pong may take. Long, because a client that has more than 16
            unread frames of ours does not read pings either.
        open_timeout_s: how long a handshake may take.
        close_timeout_s: how long the other end may take to close.
        outbox_frames: frames of ours that may wait for one client; one that falls further behind
            is dropped.
        send_deadline_s: how long one frame may wait for the socket. Keepalive does not catch a
            client that stops reading: its ping waits in the same queue.
        lanes: what one connection may ask for at once.
        allowed_origins: web origins whose pages may call. Browsers always say which one it is;
            other clients send none and need no entry.
    """

    max_message_bytes: int = 16 * 1024**2
    max_unread_frames: int = 16
    ping_interval_s: float | None = 20
    ping_timeout_s: float | None = 60
    open_timeout_s: float = 10
    close_timeout_s: float = 5
    outbox_frames: int = 1024
    send_deadline_s: float = 15
    lanes: LaneLimits = field(default_factory=LaneLimits)
    allowed_origins: frozenset[str] = frozenset()
