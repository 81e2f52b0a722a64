"""Plain HTTP beside the sockets, and who is turned away before either."""

from __future__ import annotations

import dataclasses
import json

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from omlx_tui.gateway import Gateway, GatewaySettings
from tests.gateway.fakes import FakePool, connected, model_snapshot, serving


async def test_healthz(gateway: Gateway) -> None:
    """The probe says that the loop turns."""
    async with httpx.AsyncClient(trust_env=False) as http:
        reply = await http.get(f"http://127.0.0.1:{gateway.port}/healthz")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {"status": "ok"}


async def test_models(pool: FakePool, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list has OpenAI's shape, sorted, with our figures beside it."""
    shown = (model_snapshot("b", is_pinned=True), model_snapshot("a", problem="No tokenizer."))
    snapshot = dataclasses.replace(pool.snapshot(), models=shown)
    monkeypatch.setattr(pool, "snapshot", lambda: snapshot)
    async with httpx.AsyncClient(trust_env=False) as http:
        reply = await http.get(f"{gateway.base_url}/models")
    body = reply.json()
    assert body["object"] == "list"
    assert [model["id"] for model in body["data"]] == ["a", "b"]
    assert {model["object"] for model in body["data"]} == {"model"}
    assert body["data"][0]["omlx"] == {
        "state": "unloaded",
        "size": 40,
        "servable": False,
        "reason": "No tokenizer.",
        "pinned": False,
    }
    assert body["data"][1]["omlx"]["pinned"] is True


async def test_other_paths_are_404(gateway: Gateway) -> None:
    """For HTTP and for WebSocket, as JSON that says what is there."""
    root = f"127.0.0.1:{gateway.port}"
    async with httpx.AsyncClient(trust_env=False) as http:
        reply = await http.get(f"http://{root}/v1/nothing")
        assert reply.status_code == 404
        assert "/v1/responses" in reply.json()["error"]["message"]
        assert (await http.get(f"{gateway.base_url}/responses")).status_code == 426
    with pytest.raises(InvalidStatus) as caught:
        await connect(f"ws://{root}/v2/responses", proxy=None)
    assert caught.value.response.status_code == 404


async def test_healthz_is_red_while_no_model_can_run(gateway: Gateway, pool: FakePool) -> None:
    """503 with the reason, so that a supervisor notices a thread that died."""
    pool.problem = "the MLX thread died: out of memory"
    async with httpx.AsyncClient() as http:
        reply = await http.get(f"http://127.0.0.1:{gateway.port}/healthz")
    assert reply.status_code == 503
    assert reply.json() == {"status": "failing", "reason": pool.problem}


@pytest.mark.parametrize("path", ["/healthz", "/v1/models", "/v1/responses"])
@pytest.mark.parametrize(
    "header",
    [("Origin", "https://evil.example"), ("Origin", "null"), ("Host", "evil.example")],
)
async def test_pages_of_strangers_are_refused(
    gateway: Gateway, path: str, header: tuple[str, str]
) -> None:
    """Neither a foreign page nor a rebound name gets anything, on any path."""
    async with httpx.AsyncClient(trust_env=False) as http:
        reply = await http.get(f"http://127.0.0.1:{gateway.port}{path}", headers=dict([header]))
    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "forbidden"


async def test_a_page_of_a_stranger_opens_no_socket(gateway: Gateway) -> None:
    """The refusal comes before the upgrade."""
    with pytest.raises(InvalidStatus) as caught:
        await connect(
            gateway.url, proxy=None, additional_headers={"Origin": "https://evil.example"}
        )
    assert caught.value.response.status_code == 403
    assert json.loads(caught.value.response.body)["error"]["code"] == "forbidden"


async def test_an_allowed_origin_gets_in(pool: FakePool) -> None:
    """A page of one's own can be listed."""
    origin = "http://localhost:3000"
    settings = GatewaySettings(allowed_origins=frozenset({origin}))
    async with (
        serving(pool, settings) as gateway,
        connected(gateway, additional_headers={"Origin": origin}) as client,
    ):
        await client.create()
        assert (await client.answer())[-1]["type"] == "response.completed"
