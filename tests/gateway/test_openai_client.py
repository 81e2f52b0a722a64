"""The official openai client, unmodified, gets its answers from this endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import openai
import pytest
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseIncompleteEvent,
    ResponseTextDeltaEvent,
)
from openai.types.responses.responses_server_event import (
    ResponseWsCompleted,
    ResponseWsError,
    ResponseWsIncomplete,
)

from omlx_tui.host import EngineHost
from omlx_tui.settings import HostSettings
from tests.gateway.fakes import FakePool, serving


@dataclass(frozen=True)
class Host:
    """An endpoint to talk to, whatever stands behind it."""

    base_url: str
    model: str


@pytest.fixture(params=["scripted pool", "real models"])
async def host(request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    if request.param == "scripted pool":
        async with serving(FakePool("fake")) as gateway:
            yield Host(gateway.base_url, "fake")
        return
    real = EngineHost(HostSettings(port=0))
    await real.start()
    yield Host(real.gateway.base_url, "qwen3-1m-8bit")
    await real.close()


async def test_the_async_client_streams_an_answer(host: Host) -> None:
    """Deltas add up to the text of the completed response."""
    async with (
        openai.AsyncOpenAI(base_url=host.base_url, api_key="none") as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model=host.model, input="Hello!", max_output_tokens=32)
        deltas: list[str] = []
        response: Response | None = None
        async for event in connection:
            if isinstance(event, ResponseTextDeltaEvent):
                deltas.append(event.delta)
            if isinstance(event, ResponseCompletedEvent | ResponseIncompleteEvent):
                response = event.response
                break
    assert response is not None
    assert deltas
    assert "".join(deltas) == response.output_text
    assert response.model == host.model
    assert response.usage is not None
    assert response.usage.output_tokens > 0


def stream_in_sync(host: Host) -> tuple[str, Response]:
    """The blocking client's whole conversation; runs in a thread of its own."""
    text = ""
    with (
        openai.OpenAI(base_url=host.base_url, api_key="none") as client,
        client.responses.connect() as connection,
    ):
        connection.response.create(
            model=host.model,
            instructions="Be brief.",
            input=[{"role": "user", "content": "Hello!"}],
            max_output_tokens=32,
        )
        for event in connection:
            if isinstance(event, ResponseTextDeltaEvent):
                text += event.delta
            if isinstance(event, ResponseCompletedEvent | ResponseIncompleteEvent):
                return text, event.response
    raise AssertionError("the connection closed without an answer")


async def test_the_sync_client_streams_an_answer(host: Host) -> None:
    """The blocking client sees the same."""
    text, response = await asyncio.to_thread(stream_in_sync, host)
    assert text
    assert text == response.output_text


async def test_one_connection_many_lanes(host: Host) -> None:
    """Sixteen lanes at once, each with its own answer."""
    lanes = {f"lane-{number}" for number in range(16)}
    async with (
        openai.AsyncOpenAI(base_url=host.base_url, api_key="none") as client,
        client.responses.connect() as connection,
    ):
        for lane in sorted(lanes):
            await connection.response.create(
                model=host.model, input="Hello!", stream_id=lane, max_output_tokens=8
            )
        open_lanes = set(lanes)
        while open_lanes:
            event = await connection.recv()
            if isinstance(event, ResponseWsCompleted | ResponseWsIncomplete):
                assert event.stream_id is not None
                open_lanes.remove(event.stream_id)


async def test_the_client_understands_a_refusal(host: Host) -> None:
    """An unknown model is an error event with the code that clients know."""
    async with (
        openai.AsyncOpenAI(base_url=host.base_url, api_key="none") as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model="nobody", input="Hello!")
        event = await connection.recv()
    assert isinstance(event, ResponseWsError)
    assert event.error.code == "model_not_found"
    assert event.error.param == "model"
    assert event.status == 404


async def test_the_client_lists_the_models(host: Host) -> None:
    """`client.models.list()` works over plain HTTP."""
    async with openai.AsyncOpenAI(base_url=host.base_url, api_key="none") as client:
        models = [model.id async for model in client.models.list()]
    assert host.model in models
