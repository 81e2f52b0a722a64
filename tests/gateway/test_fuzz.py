"""Frames that no client should send, on a real socket before real models.

`make fuzz` sends 100,000 of them, another sequence each time.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from omlx_tui.gateway.connection import PromptConnection
from omlx_tui.gateway.protocol import ResponsesProtocol
from omlx_tui.gateway.responses import ResponseStream
from omlx_tui.host import EngineHost
from omlx_tui.local import HostThread
from omlx_tui.settings import HostSettings
from tests.gateway.fakes import Frame, validated

MODEL = "llama-1m-fp32"
FRAMES = 10
_PROFILE = settings.default
EXAMPLES = 10_000 if _PROFILE and _PROFILE.max_examples > 1000 else 150

ENDS = {
    *("response.completed", "response.incomplete", "response.failed"),
    *("response.steer.failed", "error"),
}
PARAMETERS = (
    *("model", "input", "instructions", "temperature", "top_p", "top_k", "min_p", "seed", "stop"),
    *("presence_penalty", "frequency_penalty", "metadata", "tools", "tool_choice", "reasoning"),
    *("top_logprobs", "include", "previous_response_id", "generate", "store", "response", "text"),
    *("parallel_tool_calls", "prompt", "conversation", "background", "stream", "logit_bias"),
)

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["user", "message", "function_call", "input_text", "function", "auto"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "name", "call_id", "output", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
lanes = st.sampled_from([None, "a", "b", "c.d-e_f"])


@st.composite
def creates(draw: st.DrawFn) -> Frame:
    """Prompts that may be whole or have up to three parameters of any value at all."""
    frame: Frame = {
        "type": "response.create",
        "model": MODEL,
        "input": "Hi",
        "max_output_tokens": 2,
    }
    if lane := draw(lanes):
        frame["stream_id"] = lane
    wrong = draw(st.dictionaries(st.sampled_from(PARAMETERS), anything, max_size=3))
    return frame | wrong


cancels = st.builds(
    lambda lane, target: {"type": "response.cancel", "stream_id": lane, "response_id": target},
    lanes,
    st.none() | st.text(max_size=12) | st.integers(),
)
steers = st.builds(
    lambda target, steered: {
        "type": "response.steer",
        "previous_response_id": target,
        "input": steered,
    },
    anything,
    anything,
)
strangers = st.builds(lambda kind, body: {"type": kind, "x": body}, anything, anything)
objects = creates() | creates() | cancels | steers | strangers


def as_json(value: Any) -> str:
    return json.dumps(value)


@st.composite
def broken(draw: st.DrawFn) -> str:
    """A frame that ends too early."""
    text = as_json(draw(creates()))
    return text[: draw(st.integers(0, len(text) - 1))]


deep = st.builds(
    lambda opening, depth: opening * depth, st.sampled_from(['{"a":', "["]), st.integers(100, 9000)
)
large = st.integers(1, 300_000).map(lambda size: as_json({"type": "large", "x": "y" * size}))
frames = st.one_of(
    objects.map(as_json),
    objects.map(as_json),
    objects.map(as_json),
    broken(),
    deep,
    large,
    st.text(max_size=40),
    st.binary(max_size=40),
)
# What ends a connection, and the code that it ends with.
endings = st.sampled_from([None, None, None, ("not UTF-8", 1007), ("too big", 1009)])


@pytest.fixture(scope="module")
def thread() -> Iterator[HostThread]:
    """One host for all of it."""
    thread = HostThread(EngineHost(HostSettings(port=0, drain_s=1)))
    thread.start()
    yield thread
    thread.close()


def is_cancel(frame: str | bytes) -> bool:
    try:
        document = json.loads(frame)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("type") == "response.cancel"


def read_until_all_are_answered(socket: ClientConnection, asked: int) -> None:
    """Each frame that asks for an answer gets one, and nothing else is answered."""
    ended = 0
    open_ids: Counter[str] = Counter()
    while ended < asked or open_ids.total():
        frame = validated(json.loads(socket.recv(timeout=60)))
        kind = frame["type"]
        if kind == "response.created":
            open_ids[frame["response"]["id"]] += 1
        elif kind in ENDS:
            if "response" in frame:
                open_ids[frame["response"]["id"]] -= 1
            # A cancel of something that runs is answered by that one's end.
            ended += kind != "error" or frame["error"]["param"] != "response_id"
        assert ended <= asked
        assert all(count >= 0 for count in open_ids.values())


def read_forever(socket: ClientConnection) -> None:
    while True:
        socket.recv(timeout=60)


def end_badly(socket: ClientConnection, how: str, code: int) -> None:
    if how == "not UTF-8":
        socket.send(b'{"type":"\xff"}', text=True)
    else:
        socket.send("x" * (16 * 1024**2 + 1))
    with pytest.raises(ConnectionClosed) as closed:
        read_forever(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


# The host's thread draws random numbers too, which hypothesis takes for the strategies' doing.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@settings(max_examples=EXAMPLES)
@given(st.lists(frames, min_size=FRAMES, max_size=FRAMES), st.booleans(), endings)
def test_every_frame_is_answered_or_closes_with_its_code(
    thread: HostThread,
    sent: list[str | bytes],
    leaves_early: bool,
    ending: tuple[str, int] | None,
) -> None:
    """Whatever a client sends: an answer for each frame, in the protocol's types, or a close code.

    A client that leaves in the middle of it takes nobody along.
    """
    url = thread._host.gateway.url
    with connect(url, proxy=None, max_size=None, compression=None) as socket:
        for frame in sent:
            socket.send(frame)
        if not leaves_early:
            read_until_all_are_answered(socket, sum(not is_cancel(frame) for frame in sent))
        if ending is not None:
            end_badly(socket, *ending)


def test_nothing_is_left_of_it(thread: HostThread) -> None:
    """After all of the above: no connection, request, lease or task, and a prompt is answered."""
    host = thread._host

    async def left_when_quiet() -> tuple[int, set[str]]:
        while host.gateway.connection_count or host.pool.snapshot().requests:
            await asyncio.sleep(0)
        leases = sum(entry.leases for entry in host.pool._entries.values())
        names = {task.get_name() for task in asyncio.all_tasks()}
        return leases, {name for name in names if name.startswith(("request", "writer"))}

    assert thread._loop is not None
    quiet = asyncio.run_coroutine_threadsafe(left_when_quiet(), thread._loop)
    assert quiet.result(timeout=60) == (0, set())
    gc.collect()
    kinds = (PromptConnection, ResponsesProtocol, ResponseStream)
    assert [thing for thing in gc.get_objects() if isinstance(thing, kinds)] == []
    with connect(host.gateway.url, proxy=None) as socket:
        socket.send(as_json({"type": "response.create", "model": MODEL, "input": "Hello!"}))
        read_until_all_are_answered(socket, 1)
