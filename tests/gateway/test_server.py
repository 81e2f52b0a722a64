"""The endpoint on real loopback sockets, over a scripted pool."""

from __future__ import annotations

import asyncio
import socket

import pytest
from websockets.exceptions import ConnectionClosed

from omlx_tui.engines.types import Finished, FinishReason, LoadProgress, TextDelta
from omlx_tui.gateway import (
    EndpointInUseError,
    EndpointUnusableError,
    Gateway,
    GatewaySettings,
    UnsafeBindError,
)
from omlx_tui.pool.errors import ModelLoadError
from omlx_tui.pool.serving import Accepted
from tests.gateway.fakes import (
    Client,
    FakePool,
    Frame,
    Step,
    answer,
    connected,
    kinds_of,
    serving,
    text_of,
)

FINISHED = Finished(reason=FinishReason.STOP, prompt_tokens=1, generated_tokens=1)


def halting(gate: asyncio.Event) -> list[Step]:
    """An answer that stops in its middle until the gate opens."""
    return [Accepted("fake", needs_load=False), TextDelta("Once", 1), gate, FINISHED]


async def test_a_prompt_is_answered(pool: FakePool, client: Client) -> None:
    """A prompt comes in, and its text streams back."""
    await client.create("Hello!", max_output_tokens=5)
    frames = await client.answer()
    assert frames[-1]["type"] == "response.completed"
    assert text_of(frames) == "Hello!"
    call = pool.calls[0]
    assert [message.content for message in call.request.messages] == ["Hello!"]
    assert call.request.request_id == frames[-1]["response"]["id"]
    assert call.client.startswith("Python:")


async def test_a_connection_serves_prompt_after_prompt(client: Client) -> None:
    """The connection is not used up by an answer."""
    for _ in range(3):
        await client.create()
        assert (await client.answer())[-1]["type"] == "response.completed"


async def test_load_progress_reaches_the_client(pool: FakePool, client: Client) -> None:
    """Whoever waits for a load sees that it goes on."""
    pool.scripts["fake"] = [
        Accepted("fake", needs_load=True),
        LoadProgress(1, 4),
        TextDelta("x", 1),
        FINISHED,
    ]
    await client.create()
    assert kinds_of(await client.answer())[:4] == [
        "response.created",
        "response.queued",
        "omlx:model.loading",
        "response.in_progress",
    ]


async def test_a_failed_load_is_a_failed_response(pool: FakePool, client: Client) -> None:
    """What goes wrong after acceptance ends the response, not the connection."""
    pool.scripts["fake"] = [Accepted("fake", needs_load=True), ModelLoadError("fake", "torn")]
    await client.create()
    failed = (await client.answer())[-1]
    assert failed["type"] == "response.failed"
    assert "torn" in failed["response"]["error"]["message"]
    await client.create(model="other")
    assert (await client.answer())[-1]["type"] == "response.completed"


async def test_bad_frames_leave_the_connection_alive(client: Client) -> None:
    """Each bad frame is answered with its error; a good one after them is served."""
    bad: list[tuple[Frame | str, str]] = [
        ("{not json", "invalid_json"),
        ({"type": "nonsense"}, "unknown_event_type"),
        ({"type": "response.create", "model": 5, "input": "x"}, "invalid_type"),
        ({"type": "response.create", "model": "fak", "input": "x"}, "model_not_found"),
        ({"type": "response.create", "stream_id": "no blanks"}, "invalid_stream_id"),
    ]
    for frame, code in bad:
        await client.send(frame)
        assert (await client.frame())["error"]["code"] == code
    await client.create()
    assert (await client.answer())[-1]["type"] == "response.completed"


async def test_two_lanes_run_at_once(pool: FakePool, client: Client) -> None:
    """A lane that halts does not hold up another one of the same connection."""
    gate = asyncio.Event()
    pool.scripts["fake"] = halting(gate)
    await client.create(stream_id="slow")
    await client.until("response.output_text.delta")
    await client.create(model="other", stream_id="quick")
    quick = await client.answer()
    assert {frame["stream_id"] for frame in quick} == {"quick"}
    gate.set()
    slow = await client.answer()
    assert {frame["stream_id"] for frame in slow} == {"slow"}


async def test_the_default_lane_is_first_come_first_served(pool: FakePool, client: Client) -> None:
    """Pipelined prompts are answered one after the other, in order."""
    pool.script_for = lambda request: answer(request.messages[-1].content)
    for text in ("one", "two", "three"):
        await client.create(text)
    for text in ("one", "two", "three"):
        frames = await client.answer()
        assert kinds_of(frames)[0] == "response.created"
        assert text_of(frames) == text


async def test_a_closed_connection_cancels_its_requests(pool: FakePool, gateway: Gateway) -> None:
    """Whoever leaves politely gives back the slot at once."""
    pool.scripts["fake"] = halting(asyncio.Event())
    async with connected(gateway) as client:
        await client.create()
        await client.until("response.output_text.delta")
    call = pool.calls[0]
    await call.ended.wait()
    assert call.was_cancelled


async def test_a_lost_connection_cancels_its_requests(pool: FakePool, gateway: Gateway) -> None:
    """So does whoever vanishes in the middle, on every lane."""
    pool.scripts["fake"] = halting(asyncio.Event())
    async with connected(gateway) as client:
        await client.create(stream_id="a")
        await client.create(stream_id="b")
        calls = [await pool.call(0), await pool.call(1)]
        client.socket.transport.abort()
        for call in calls:
            await call.ended.wait()
            assert call.was_cancelled


async def test_cancel_ends_the_response(pool: FakePool, client: Client) -> None:
    """The client gets its terminal event, the pool is told to stop, the lane goes on."""
    pool.scripts["fake"] = halting(asyncio.Event())
    await client.create()
    created = (await client.until("response.output_text.delta"))[0]
    await client.send({"type": "response.cancel", "response_id": created["response"]["id"]})
    last = (await client.answer())[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["status"] == "cancelled"
    await pool.calls[0].ended.wait()
    assert pool.calls[0].was_cancelled
    await client.create(model="other")
    assert (await client.answer())[-1]["type"] == "response.completed"


def endless(size: int) -> list[Step]:
    """An answer that no socket buffer holds."""
    deltas = [TextDelta("x" * size, count) for count in range(1, 100)]
    return [Accepted("fake", needs_load=False), *deltas, FINISHED]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(GatewaySettings(outbox_frames=4), id="overflow"),
        pytest.param(GatewaySettings(outbox_frames=10_000, send_deadline_s=0.2), id="deadline"),
    ],
)
async def test_a_reader_that_stalls_is_dropped(settings: GatewaySettings) -> None:
    """It loses its connection and its requests; others notice nothing."""
    pool = FakePool("fake", "other")
    pool.scripts["fake"] = endless(200_000)
    async with serving(pool, settings) as gateway, connected(gateway, max_queue=None) as stalled:
        stalled.socket.transport.pause_reading()
        await stalled.create()
        call = await pool.call(0)
        async with connected(gateway) as other:
            await other.create(model="other")
            assert (await other.answer())[-1]["type"] == "response.completed"
            await call.ended.wait()
            await other.create(model="other")
            assert (await other.answer())[-1]["type"] == "response.completed"
        # It learns of it as soon as it reads again.
        stalled.socket.transport.resume_reading()
        await stalled.socket.wait_closed()


async def test_shutdown_lets_a_running_answer_finish() -> None:
    """What runs ends as usual, what comes is refused, and the connection closes with 1001."""
    pool = FakePool("fake", "other")
    gate = asyncio.Event()
    pool.scripts["fake"] = halting(gate)
    async with serving(pool) as gateway, connected(gateway) as client:
        await client.create(stream_id="a")
        await client.until("response.output_text.delta")
        closing = asyncio.create_task(gateway.close(drain_s=60))
        await asyncio.sleep(0)
        await client.create(stream_id="b")
        refused = await client.frame()
        assert (refused["status"], refused["error"]["code"]) == (503, "server_is_overloaded")
        gate.set()
        assert (await client.answer())[-1]["type"] == "response.completed"
        with pytest.raises(ConnectionClosed) as closed:
            await client.socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        await closing


async def test_shutdown_cancels_what_does_not_finish() -> None:
    """After the grace period each request gets its terminal event, then comes 1001."""
    pool = FakePool()
    pool.scripts["fake"] = halting(asyncio.Event())
    async with serving(pool) as gateway, connected(gateway) as client:
        await client.create()
        await client.until("response.output_text.delta")
        closing = asyncio.create_task(gateway.close(drain_s=0))
        last = (await client.answer())[-1]
        assert last["response"]["status"] == "cancelled"
        with pytest.raises(ConnectionClosed) as closed:
            await client.socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        await closing
        assert pool.calls[0].was_cancelled


async def test_shutdown_refuses_what_the_pool_has_not_accepted() -> None:
    """A request without a response ends with an error frame, and no retry storm follows."""
    pool = FakePool()
    pool.scripts["fake"] = [asyncio.Event(), *answer("late")]
    async with serving(pool) as gateway, connected(gateway) as client:
        await client.create()
        call = await pool.call(0)
        closing = asyncio.create_task(gateway.close(drain_s=0))
        refused = await client.frame()
        assert (refused["status"], refused["error"]["code"]) == (503, "server_is_overloaded")
        await closing
        assert call.was_cancelled


async def test_after_close_no_task_is_left_and_the_port_is_free(pool: FakePool) -> None:
    """Idle connections, half-open ones and stalled ones don't hold up the end."""
    before = asyncio.all_tasks()
    settings = GatewaySettings(close_timeout_s=0.2, send_deadline_s=0.2)
    gateway = Gateway(pool, settings=settings)
    await gateway.start()
    pool.scripts["fake"] = endless(200_000)
    _, half_open = await asyncio.open_connection("127.0.0.1", gateway.port)
    async with connected(gateway) as idle, connected(gateway, max_queue=None) as stalled:
        stalled.socket.transport.pause_reading()
        await stalled.create()
        await pool.call(0)
        await gateway.close(drain_s=0)
        assert gateway.connection_count == 0
        with pytest.raises(ConnectionClosed):
            await idle.socket.recv()
        stalled.socket.transport.abort()
    half_open.transport.abort()
    await asyncio.sleep(0)
    assert not {t for t in asyncio.all_tasks() - before if not t.done()}
    again = Gateway(pool, port=gateway.port)
    await again.start()
    await again.close()


async def test_closing_twice_or_unopened_does_nothing(pool: FakePool) -> None:
    """Whoever cleans up need not know what was started."""
    gateway = Gateway(pool)
    await gateway.close()
    await gateway.start()
    await gateway.close()
    await gateway.close()


async def test_a_taken_port_is_told_in_words(pool: FakePool, gateway: Gateway) -> None:
    """The message names the address and the way out."""
    second = Gateway(pool, port=gateway.port)
    with pytest.raises(EndpointInUseError, match=rf"127\.0\.0\.1:{gateway.port} .*--port"):
        await second.start()


@pytest.mark.parametrize("host", ["0.0.0.0", "", "192.0.2.1", "example.org"])  # noqa: S104
async def test_an_open_address_is_refused(pool: FakePool, host: str) -> None:
    """Without tokens nobody but this machine may call."""
    with pytest.raises(UnsafeBindError, match="loopback"):
        await Gateway(pool, host=host).start()


async def test_an_address_that_is_not_there_is_an_endpoint_error(pool: FakePool) -> None:
    """Whatever the system says comes back as one kind of error."""
    with pytest.raises(EndpointUnusableError, match=r"127\.0\.0\.1:70000"):
        await Gateway(pool, port=70000).start()


async def test_a_frame_beyond_the_limit_closes_its_connection_only(pool: FakePool) -> None:
    """It is answered with 1009, and another client goes on."""
    settings = GatewaySettings(max_message_bytes=1000)
    async with (
        serving(pool, settings) as gateway,
        connected(gateway) as greedy,
        connected(gateway) as other,
    ):
        await greedy.create("x" * 2000)
        with pytest.raises(ConnectionClosed) as closed:
            await greedy.socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        await other.create()
        assert (await other.answer())[-1]["type"] == "response.completed"


async def test_nothing_is_compressed(client: Client) -> None:
    """Compression costs memory and time on every connection, and loopback needs none."""
    assert client.socket.protocol.extensions == []


async def test_ipv6_loopback(pool: FakePool) -> None:
    """Its URL is one that clients can use."""
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    gateway = Gateway(pool, host="::1")
    try:
        await gateway.start()
    except EndpointUnusableError as error:
        pytest.skip(f"this machine has no ::1 ({error})")
    try:
        async with connected(gateway) as client:
            await client.create()
            assert (await client.answer())[-1]["type"] == "response.completed"
    finally:
        await gateway.close(drain_s=0)
