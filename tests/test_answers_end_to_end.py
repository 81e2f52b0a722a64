"""Thoughts, calls, log probabilities and warm-ups: real models, a real socket, strict types."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omlx_tui.host import EngineHost
from omlx_tui.settings import HostSettings
from tests.calling_models import ARGUMENTS, MODEL_ID, QUESTION, SAMPLE, TOOL, write_calling_model
from tests.conftest import SAMPLE_MODELS
from tests.gateway.fakes import Client, Frame, connected, text_of


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    write_calling_model(root)
    (root / SAMPLE).symlink_to(SAMPLE_MODELS / SAMPLE)
    return root


@pytest.fixture
async def host(models: Path) -> AsyncIterator[EngineHost]:
    host = EngineHost(HostSettings(models=(models,), port=0, drain_s=1))
    await host.start()
    yield host
    await host.close()


@pytest.fixture
async def client(host: EngineHost) -> AsyncIterator[Client]:
    async with connected(host.gateway) as client:
        yield client


async def answer(client: Client, text: Any = QUESTION, **fields: Any) -> list[Frame]:
    """The frames of one request to the model that calls."""
    body = {"model": MODEL_ID, "temperature": 0, "max_output_tokens": 12}
    await client.create(input=text, **(body | fields))
    return await client.answer()


def items(frames: list[Frame]) -> list[dict[str, Any]]:
    return frames[-1]["response"]["output"]


async def test_a_model_thinks_calls_and_speaks(client: Client) -> None:
    """Each part is an item of its own, and the tokens of the thought are counted as such."""
    frames = await answer(client, tools=[TOOL])
    thought, before, call, after = items(frames)
    assert thought["content"][0]["text"].strip()
    assert (call["name"], json.loads(call["arguments"])) == ("weather", ARGUMENTS)
    words = before["content"][0]["text"] + after["content"][0]["text"]
    assert words == text_of(frames)
    assert "<" not in words + thought["content"][0]["text"]
    details = frames[-1]["response"]["usage"]["output_tokens_details"]
    assert details["reasoning_tokens"] == 4


async def test_the_result_of_a_call_is_read(client: Client) -> None:
    """By the id of the response that made it, or with the whole conversation: the same prompt."""
    first = await answer(client, tools=[TOOL], parallel_tool_calls=False)
    call = items(first)[-1]
    assert call["type"] == "function_call"  # nothing comes after the one that was wanted
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "-3 °C"}
    response_id = first[-1]["response"]["id"]
    continued = await answer(client, [result], tools=[TOOL], previous_response_id=response_id)
    whole = [{"role": "user", "content": QUESTION}, *items(first), result]
    repeated = await answer(client, whole, tools=[TOOL])
    usages = [frames[-1]["response"]["usage"]["input_tokens"] for frames in (continued, repeated)]
    assert usages[0] == usages[1] > first[-1]["response"]["usage"]["input_tokens"]
    assert text_of(continued) == text_of(repeated)


async def test_what_nobody_offered_is_text(client: Client) -> None:
    """A model that calls all the same has only said something odd."""
    assert "<tool_call>" in text_of(await answer(client))
    assert "<tool_call>" in text_of(await answer(client, tools=[TOOL], tool_choice="none"))


async def test_a_template_without_tools_is_a_clear_error(client: Client) -> None:
    """Before anything is created, in a frame that names the parameter."""
    (error,) = (await answer(client, model=SAMPLE, tools=[TOOL]))[-1:]
    # The model had to be loaded for its template to be read.
    assert error["type"] == "response.failed"
    assert "no tools" in error["response"]["error"]["message"]
    (error,) = await answer(client, model=SAMPLE, tools=[TOOL])
    assert (error["status"], error["error"]["code"]) == (400, "tools_not_supported")
    assert text_of(await answer(client, model=SAMPLE, tools=[]))


async def test_log_probabilities_are_those_of_the_model(client: Client) -> None:
    """Greedy decoding says the likeliest token; its rivals come in order behind it."""
    frames = await answer(client, model=SAMPLE, top_logprobs=3)
    (message,) = items(frames)
    (part,) = message["content"]
    entries = part["logprobs"]
    assert "".join(entry["token"] for entry in entries) == part["text"]
    assert len(entries) == 12
    for entry in entries:
        top = entry["top_logprobs"]
        assert (top[0]["token"], top[0]["logprob"]) == (entry["token"], entry["logprob"])
        assert [rival["logprob"] for rival in top] == sorted(
            (rival["logprob"] for rival in top), reverse=True
        )
        assert len(top) == 3
        assert sum(math.exp(rival["logprob"]) for rival in top) <= 1 + 1e-6
        assert bytes(entry["bytes"]).decode() == entry["token"]


async def test_a_warm_up_loads_the_model_and_can_be_continued(
    host: EngineHost, client: Client
) -> None:
    """Afterwards the model is there, and what it was given comes before the question."""
    warm = await answer(client, "There was a fox.", model=SAMPLE, generate=False)
    assert warm[-1]["type"] == "response.completed"
    assert items(warm) == []
    (sample,) = (m for m in host.pool.snapshot().models if m.model_id == SAMPLE)
    assert sample.state.value == "ready"
    warm_up = warm[-1]["response"]
    frames = await answer(client, model=SAMPLE, previous_response_id=warm_up["id"])
    assert frames[-1]["response"]["usage"]["input_tokens"] > warm_up["usage"]["input_tokens"]


async def test_a_warm_up_without_any_input(client: Client) -> None:
    """Clients warm a model up with their instructions alone; a template may refuse just these."""
    frames = await answer(client, None, model=SAMPLE, instructions="Be kind.", generate=False)
    assert frames[-1]["type"] == "response.completed"
