"""The prompt client against a real endpoint with a scripted pool."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.server import ServerConnection, serve

from omlx_tui.client import (
    Delta,
    Done,
    InLine,
    Loading,
    PromptError,
    PromptEvent,
    Usage,
    endpoint_url,
    stream_prompt,
)
from omlx_tui.engines.types import Finished, FinishReason, LoadProgress, TextDelta
from omlx_tui.gateway import Gateway
from omlx_tui.pool.errors import ModelLoadError
from omlx_tui.pool.serving import Accepted, Waiting
from tests.gateway.fakes import FakePool, serving


@pytest.fixture
def pool() -> FakePool:
    return FakePool("fake", "other")


@pytest.fixture
async def gateway(pool: FakePool) -> AsyncIterator[Gateway]:
    async with serving(pool) as gateway:
        yield gateway


async def collect(url: str, model: str | None = None) -> list[PromptEvent]:
    return [event async for event in stream_prompt(url, "Hello!", model=model)]


async def test_an_answer_is_deltas_and_a_done(gateway: Gateway) -> None:
    """The text comes in pieces, the end says what it cost and who wrote it."""
    events = await collect(gateway.url, model="fake")
    assert [event.text for event in events if isinstance(event, Delta)] == ["Hel", "lo", "!"]
    assert events[-1] == Done(Usage(5, 3, 2), "completed", "fake")


async def test_parameters_reach_the_pool(pool: FakePool, gateway: Gateway) -> None:
    """Whatever the caller sets is part of the request, under the name it gave itself."""
    stream = stream_prompt(
        gateway.url,
        "Hi",
        model="other",
        instructions="Be brief.",
        max_output_tokens=7,
        temperature=0.5,
        seed=3,
        client_name="tester",
    )
    async with contextlib.aclosing(stream) as events:
        async for _ in events:
            pass
    (call,) = pool.calls
    assert call.model_id == "other"
    assert [message.content for message in call.request.messages] == ["Be brief.", "Hi"]
    assert call.request.max_tokens == 7
    assert call.request.sampling.temperature == 0.5
    assert call.request.sampling.seed == 3
    assert call.client.startswith("tester:")


async def test_without_a_model_the_host_chooses(pool: FakePool, gateway: Gateway) -> None:
    """The caller need not know any name."""
    await collect(gateway.url)
    assert pool.calls[0].model_id == "fake"


async def test_a_load_is_seen(pool: FakePool, gateway: Gateway) -> None:
    """Its progress comes before the text."""
    finished = Finished(reason=FinishReason.LENGTH, prompt_tokens=1, generated_tokens=1)
    pool.scripts["fake"] = [
        Accepted("fake", needs_load=True),
        LoadProgress(1, 4),
        TextDelta("x", 1),
        finished,
    ]
    events = await collect(gateway.url, model="fake")
    assert events == [Loading(1, 4), Delta("x"), Done(Usage(1, 1, 0), "incomplete", "fake")]


async def test_a_wait_for_room_is_an_event(pool: FakePool, gateway: Gateway) -> None:
    """The place in the line and the reason, before the load."""
    finished = Finished(reason=FinishReason.STOP, prompt_tokens=1, generated_tokens=1)
    pool.scripts["fake"] = [
        Accepted("fake", needs_load=True),
        Waiting(1, "Held by x."),
        TextDelta("x", 1),
        finished,
    ]
    events = [event async for event in stream_prompt(gateway.url, "Hello!", model="fake")]
    assert events[0] == InLine(1, "Held by x.")


async def test_a_refusal_is_an_error_with_its_code(gateway: Gateway) -> None:
    """The near names of an unknown model reach the person who mistyped it."""
    with pytest.raises(PromptError, match="Did you mean fake") as caught:
        await collect(gateway.url, model="fak")
    assert caught.value.code == "model_not_found"


async def test_a_failed_response_is_an_error(pool: FakePool, gateway: Gateway) -> None:
    """A load that fails under way says why."""
    pool.scripts["fake"] = [Accepted("fake", needs_load=True), ModelLoadError("fake", "torn file")]
    with pytest.raises(PromptError, match="torn file"):
        await collect(gateway.url, model="fake")


async def test_nobody_there_says_how_to_start_one() -> None:
    """The message is for somebody who has not started the host yet."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{unused.getsockname()[1]}/v1/responses"
        with pytest.raises(PromptError, match=r"No host listens at ws://.*omlx-tui") as caught:
            await collect(url)
    assert caught.value.code == "no_host"


async def test_a_server_of_another_kind_is_told_apart() -> None:
    """What answers HTTP, or nothing that is HTTP, is not taken for a host."""

    async def mumble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"what?\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(mumble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PromptError) as caught:
            await collect(f"127.0.0.1:{port}")
    assert caught.value.code == "handshake_refused"


async def test_a_wrong_path_is_told_in_the_hosts_words(gateway: Gateway) -> None:
    """The refusal says what is served."""
    with pytest.raises(PromptError, match=r"404.*/v1/responses") as caught:
        await collect(f"ws://127.0.0.1:{gateway.port}/v9")
    assert caught.value.code == "handshake_refused"


async def test_a_host_that_shuts_down_ends_the_answer_as_cancelled(
    pool: FakePool, gateway: Gateway
) -> None:
    """Half an answer is never taken for a whole one."""
    pool.scripts["fake"] = [Accepted("fake", False), TextDelta("Once", 1), asyncio.Event()]
    stream = stream_prompt(gateway.url, "Hi", model="fake")
    async with contextlib.aclosing(stream) as events:
        assert await anext(events) == Delta("Once")
        closing = asyncio.create_task(gateway.close(drain_s=0))
        end = await anext(events)
        assert isinstance(end, Done)
        assert end.status == "cancelled"
        await closing


@pytest.mark.parametrize("code", [1000, 1001, 1011])
async def test_a_host_that_closes_early_is_an_error(code: int) -> None:
    """Whatever its close code is, there was no end."""

    async def leave(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.close(code)

    async with serve(leave, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(PromptError) as caught:
            await collect(f"ws://127.0.0.1:{port}")
    assert caught.value.code == "connection_lost"


@pytest.mark.parametrize("frame", ["{", "[]", '{"no":"type"}', '{"type":"error"}'])
async def test_nonsense_from_the_host_is_an_error(frame: str) -> None:
    """The client trusts nobody."""

    async def babble(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(frame)
        await connection.wait_closed()

    async with serve(babble, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(PromptError) as caught:
            await collect(f"ws://127.0.0.1:{port}")
    assert caught.value.code == "protocol_error"


async def test_leaving_early_cancels_the_request(pool: FakePool, gateway: Gateway) -> None:
    """Closing the generator is enough; the host frees the slot."""
    pool.scripts["fake"] = [Accepted("fake", False), TextDelta("Once", 1), asyncio.Event()]
    stream = stream_prompt(gateway.url, "Hi", model="fake")
    async with contextlib.aclosing(stream) as events:
        await anext(events)
    await pool.calls[0].ended.wait()
    assert pool.calls[0].was_cancelled


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("ws://h:1", "ws://h:1/v1/responses"),
        ("ws://h:1/", "ws://h:1/v1/responses"),
        ("h:1", "ws://h:1/v1/responses"),
        ("http://h:1/v1", "ws://h:1/v1/responses"),
        ("http://h:1/v1/", "ws://h:1/v1/responses"),
        ("https://h/v1", "wss://h/v1/responses"),
        ("ws://h:1/v1/responses", "ws://h:1/v1/responses"),
        ("ws://[::1]:1", "ws://[::1]:1/v1/responses"),
    ],
)
def test_urls_as_people_write_them(url: str, endpoint: str) -> None:
    """The base URL of other clients, a bare address, or the whole thing."""
    assert endpoint_url(url) == endpoint


@pytest.mark.parametrize("url", ["", "ftp://h", "ws://", "ws://h:x", "ws://h:99999", "ws://[::1"])
def test_what_is_no_url(url: str) -> None:
    """The message shows what one looks like."""
    with pytest.raises(PromptError, match="ws://127") as caught:
        endpoint_url(url)
    assert caught.value.code == "invalid_url"
