"""What the socket tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from omlx_tui.gateway import Gateway
from tests.gateway.fakes import Client, FakePool, connected, serving


@pytest.fixture
def pool() -> FakePool:
    return FakePool("fake", "other")


@pytest.fixture
async def gateway(pool: FakePool) -> AsyncIterator[Gateway]:
    async with serving(pool) as gateway:
        yield gateway


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[Client]:
    async with connected(gateway) as client:
        yield client
