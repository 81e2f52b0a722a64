"""Who may call, decided on headers alone."""

from __future__ import annotations

import pytest

from omlx_tui.gateway.guards import (
    client_name,
    is_loopback,
    refusal_of_host,
    refusal_of_origin,
)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST."]
)
def test_loopback_addresses(host: str) -> None:
    """Only this machine reaches them."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "192.168.1.2", "example.org", "localhost.x.org", "127.0.0.1.x"],  # noqa: S104
)
def test_other_addresses(host: str) -> None:
    """Others could reach these, or nobody knows."""
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:80", "localhost:8000", "[::1]:8000", "box.local:1", "BOX.local"],
)
def test_allowed_hosts(host: str) -> None:
    """Loopback names and the bound host, with any port."""
    assert refusal_of_host([host], "box.local") is None


@pytest.mark.parametrize(
    "hosts",
    [[], ["evil.org"], ["127.0.0.1", "127.0.0.1"], ["[::1"], ["127.0.0.1.evil.org"], [""]],
)
def test_refused_hosts(hosts: list[str]) -> None:
    """A rebound name, none, two, or nonsense."""
    assert refusal_of_host(hosts, "127.0.0.1")


def test_origins() -> None:
    """No origin is fine; one must be listed, and `null` never counts as listed."""
    allowed = frozenset({"http://localhost:3000", "null"})
    assert refusal_of_origin([], allowed) is None
    assert refusal_of_origin(["http://localhost:3000"], allowed) is None
    assert refusal_of_origin(["http://localhost:3001"], allowed)
    assert refusal_of_origin(["null"], allowed)
    assert refusal_of_origin(["http://localhost:3000"] * 2, allowed)


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("AsyncOpenAI/Python 3.57.0", "AsyncOpenAI:5"),
        ("Mozilla\x1b[31m/5.0", "Mozilla31m:5"),
        ("x" * 500, "x" * 32 + ":5"),
        ("", "127.0.0.1:5"),
        (None, "127.0.0.1:5"),
    ],
)
def test_client_names_are_short_and_clean(user_agent: str | None, name: str) -> None:
    """What a stranger calls itself can't draw on the operator's terminal."""
    assert client_name(user_agent, ("127.0.0.1", 5)) == name
