"""Who may call: the checks that come before any path is looked at."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

_MAX_CLIENT_NAME = 32


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. Names other than localhost are not resolved."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def refusal_of_origin(origins: Sequence[str], allowed: Collection[str]) -> str | None:
    """Why a request with these ``Origin`` headers is refused, or None.

    Only browsers send the header; without it a page anywhere could prompt the models of whoever
    reads it. ``null`` is what sandboxed pages send, of any site, and is never allowed.
    """
    if not origins:
        return None
    if len(origins) == 1 and origins[0] != "null" and origins[0] in allowed:
        return None
    return "Pages of this origin may not call this host."


def refusal_of_host(hosts: Sequence[str], bound_host: str) -> str | None:
    """Why a request with these ``Host`` headers is refused, or None.

    A name that an attacker points at 127.0.0.1 (DNS rebinding) makes a page of his same-origin with
    this host; the header still says the name.
    """
    if len(hosts) == 1:
        try:
            name = urlsplit(f"//{hosts[0]}").hostname or ""
        except ValueError:
            name = ""
        if is_loopback(name) or name == bound_host.lower():
            return None
    return "This host answers to loopback names and to the address it listens on only."


def client_name(user_agent: str | None, address: Sequence[object]) -> str:
    """What the operator sees of a client: its product and port, or its address and port."""
    ip, port = (address[0], address[1]) if len(address) >= 2 else ("local", 0)
    product = re.sub(r"[^A-Za-z0-9_.-]", "", (user_agent or "").partition("/")[0])
    return f"{product[:_MAX_CLIENT_NAME] or ip}:{port}"
