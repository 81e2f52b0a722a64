"""The host: started and stopped in order, whole or not at all."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path

import pytest

from omlx_tui.engines.device import Device
from omlx_tui.gateway import EndpointInUseError
from omlx_tui.host import EngineHost
from omlx_tui.local import HostThread
from omlx_tui.pool import ModelNotFoundError, PoolError
from omlx_tui.settings import SAMPLE_BUDGET, HostSettings
from omlx_tui.sizes import Budget
from tests.model_folders import write_model

QWEN = "qwen3-1m-8bit"


def a_device() -> Device:
    return Device(kind="cpu", name="test", capacity_bytes=1000, available_bytes=500)


@pytest.mark.parametrize(
    ("text", "budget_bytes"), [("6MB", 6_000_000), ("60%", 600), ("auto", 350)]
)
async def test_the_budget_is_bytes_a_share_or_the_devices_own(
    tmp_path: Path, text: str, budget_bytes: int
) -> None:
    """A percentage is of the device's capacity; auto is a share of what is available."""
    settings = HostSettings(models=(tmp_path,), max_model_memory=Budget.parse(text), port=0)
    host = EngineHost(settings, read_device=a_device)
    await host.start()
    assert host.pool.max_model_memory == budget_bytes
    await host.close()


async def test_the_samples_come_with_a_budget_that_they_do_not_all_fit() -> None:
    """So that the first evening shows an eviction."""
    host = EngineHost(HostSettings(port=0))
    await host.start()
    models = host.pool.snapshot().models
    needed = [model.weights_bytes + model.headroom_bytes for model in models]
    assert len(models) == 5
    assert all(model.is_servable for model in models)
    assert max(needed) < host.pool.max_model_memory == Budget.parse(SAMPLE_BUDGET).size_bytes
    assert host.pool.max_model_memory < sum(needed)
    await host.close()


async def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A missing folder, an unknown pin, a taken port: an error that says so, and no socket."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for settings, error in (
            (HostSettings(models=(tmp_path / "nowhere",), port=0), FileNotFoundError),
            (HostSettings(models=(tmp_path,), pin=("x",), port=0), ModelNotFoundError),
            (HostSettings(models=(tmp_path,), port=port), EndpointInUseError),
        ):
            host = EngineHost(settings, read_device=a_device)
            with pytest.raises(error):
                await host.start()
            await host.close()
    assert not [thread for thread in threading.enumerate() if thread.name in ("mlx", "tokenizer")]


async def test_pins_and_several_roots(tmp_path: Path) -> None:
    """``--models`` and ``--pin`` may be given again."""
    write_model(tmp_path / "one" / "a")
    write_model(tmp_path / "two" / "b")
    settings = HostSettings(models=(tmp_path / "one", tmp_path / "two"), pin=("b",), port=0)
    host = EngineHost(settings, read_device=a_device)
    await host.start()
    assert {m.model_id: m.is_pinned for m in host.pool.snapshot().models} == {"a": False, "b": True}
    await host.close()


async def test_the_demo_evicts_through_the_real_socket_and_stops_at_once() -> None:
    """Made-up clients come in by the endpoint; evictions happen; the same switch ends it."""
    host = EngineHost(HostSettings(port=0))
    await host.start()
    has_evicted = asyncio.Event()
    host.pool.events.subscribe(lambda e: has_evicted.set() if e.kind == "evict" else None)
    await host.set_demo(is_running=True)
    await host.set_demo(is_running=True)
    assert host.is_demo_running
    await asyncio.wait_for(has_evicted.wait(), 60)
    clients = {request.client for request in host.pool.snapshot().requests}
    assert all(client.startswith("omlx-demo") for client in clients)
    await host.set_demo(is_running=False)
    assert not host.is_demo_running
    while host.pool.snapshot().requests:
        await asyncio.sleep(0)
    await host.close()


async def test_a_demo_without_models_is_refused(tmp_path: Path) -> None:
    """An empty folder has nobody to ask: no reason not to start, but an answer to the key."""
    settings = HostSettings(models=(tmp_path,), port=0, demo=True)
    host = EngineHost(settings, read_device=a_device)
    await host.start()
    assert not host.is_demo_running
    with pytest.raises(PoolError):
        await host.set_demo(is_running=True)
    await host.close()


def wait_for_frame(thread: HostThread, is_so: object) -> None:
    """Until a frame says so; a stuck host fails by pytest's own timeout."""
    while not is_so(thread.frame()):  # type: ignore[operator]
        time.sleep(0.01)


def test_a_host_in_a_thread_serves_a_console() -> None:
    """Frames without waiting, commands from another loop, and no thread left afterwards."""
    thread = HostThread(EngineHost(HostSettings(port=0)))
    thread.start()
    frame = thread.frame()
    assert frame is not None
    assert frame.endpoint.startswith("ws://127.0.0.1:")
    assert frame.snapshot.resident_count == 0

    async def steer() -> int:
        await thread.load(QWEN)
        await thread.set_pinned(QWEN, is_pinned=True)
        assert (await thread.plan_load(QWEN)).is_resident
        with pytest.raises(ModelNotFoundError):
            await thread.load("nobody")
        return await thread.unload(QWEN, force=False)

    assert asyncio.run(steer()) > 1_000_000
    wait_for_frame(thread, lambda f: f.snapshot.model(QWEN).is_pinned)
    wait_for_frame(thread, lambda f: f.events[-1].kind == "unload")
    thread.close()
    thread.close()
    with pytest.raises(RuntimeError, match="has ended"):
        asyncio.run(thread.load(QWEN))
    names = {other.name for other in threading.enumerate()}
    assert not names & {"host", "mlx", "tokenizer_0"}


def test_a_thread_whose_host_cannot_start_says_why(tmp_path: Path) -> None:
    """The error comes out of ``start``, and the thread is gone."""
    thread = HostThread(EngineHost(HostSettings(models=(tmp_path / "no",), port=0)))
    with pytest.raises(FileNotFoundError):
        thread.start()
    assert not any(other.name == "host" for other in threading.enumerate())
