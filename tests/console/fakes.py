"""Frozen pictures of a host on a stopped clock, and a source that shows them and notes commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omlx_tui.console.source import Frame
from omlx_tui.engines.types import FinishReason, LoadProgress, MemoryReading
from omlx_tui.pool import events
from omlx_tui.pool.snapshot import (
    LoadPlan,
    ModelSnapshot,
    ModelState,
    PoolSnapshot,
    RequestSnapshot,
    RequestState,
)

NOW_S = 10_000.0
WALL_S = 1_760_000_000.0
MB = 10**6
BUDGET = 6 * MB


class FakeSource:
    """Shows ``picture`` and notes every command in ``calls``; raises ``error`` if there is one."""

    def __init__(self, picture: Frame | None = None) -> None:
        self.picture = picture
        self.calls: list[tuple[object, ...]] = []
        self.error: Exception | None = None

    def frame(self) -> Frame | None:
        return self.picture

    async def load(self, model_id: str) -> None:
        self._note("load", model_id)

    async def unload(self, model_id: str, *, force: bool) -> int:
        self._note("unload", model_id, force)
        return 0

    async def set_pinned(self, model_id: str, *, is_pinned: bool) -> None:
        self._note("pin", model_id, is_pinned)

    async def plan_load(self, model_id: str) -> LoadPlan:
        raise NotImplementedError

    async def rescan(self) -> None:
        self._note("rescan")

    async def set_demo(self, *, is_running: bool) -> None:
        self._note("demo", is_running)

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


def model(model_id: str, state: ModelState = ModelState.UNLOADED, **changes: Any) -> ModelSnapshot:
    """A servable model on disk; ``changes`` make it another one."""
    plain = ModelSnapshot(
        model_id=model_id,
        path=f"/srv/models/{model_id}",
        model_type="llama",
        state=state,
        is_servable=True,
        is_pinned=False,
        is_next_victim=False,
        lru_rank=None,
        last_access_s=None,
        weights_bytes=1_900_000,
        weights_measured=False,
        headroom_bytes=475_000,
        held_bytes=0,
        kv_bytes=0,
        active_requests=0,
        queued_requests=0,
        leases=0,
        tokens_per_s=0.0,
        load=None,
        problem="",
    )
    return replace(plain, **changes)


def resident(
    model_id: str, *, rank: int, idle_s: float, weights: int = 1_900_000, **changes: Any
) -> ModelSnapshot:
    """A model in memory, measured."""
    headroom = weights // 4
    facts: dict[str, Any] = {
        "state": ModelState.READY,
        "lru_rank": rank,
        "last_access_s": NOW_S - idle_s,
        "weights_bytes": weights,
        "weights_measured": True,
        "headroom_bytes": headroom,
        "held_bytes": weights + headroom,
    }
    return model(model_id, **(facts | changes))


def busy(model_id: str, *, rank: int, active: int = 2, **changes: Any) -> ModelSnapshot:
    """A model in memory that is generating."""
    facts: dict[str, Any] = {
        "active_requests": active,
        "leases": active,
        "tokens_per_s": 84.2,
        "kv_bytes": 120_000,
    }
    return resident(model_id, rank=rank, idle_s=0.4, **(facts | changes))


def request(
    request_id: str, model_id: str, state: RequestState = RequestState.DECODE, **changes: Any
) -> RequestSnapshot:
    plain = RequestSnapshot(
        request_id=request_id,
        client="127.0.0.1:50312",
        model_id=model_id,
        state=state,
        started_s=NOW_S - 4,
        prompt_tokens=42,
        prefilled_tokens=42,
        generated_tokens=180,
        tokens_per_s=42.1,
    )
    return replace(plain, **changes)


def frame(
    *models: ModelSnapshot,
    requests: tuple[RequestSnapshot, ...] = (),
    log: tuple[events.PoolEvent, ...] = (),
    budget: int = BUDGET,
    **changes: Any,
) -> Frame:
    """A picture whose totals follow from its models and requests."""
    held = sum(each.held_bytes for each in models)
    snapshot = PoolSnapshot(
        seq=1,
        taken_s=NOW_S,
        wall_s=WALL_S,
        budget_bytes=budget,
        held_bytes=held,
        peak_held_bytes=max(held, 5_400_000 if models else 0),
        memory=MemoryReading(active_bytes=int(held * 0.8), cache_bytes=210_000 if held else 0),
        models=models,
        requests=requests,
        tokens_per_s=sum(each.tokens_per_s for each in requests),
        evictions=sum(isinstance(each, events.ModelEvicted) for each in log),
        last_event_seq=log[-1].seq if log else 0,
    )
    picture = Frame(
        snapshot=snapshot,
        events=log,
        host_name="host",
        endpoint="ws://127.0.0.1:8765/v1/responses",
        uptime_s=780.0,
    )
    return replace(picture, **changes)


def at(seq: int) -> dict[str, Any]:
    """Number and time of an event: one each 7 seconds up to now."""
    return {"seq": seq, "wall_s": WALL_S + 7 * seq, "mono_s": NOW_S + 7 * seq}


def found(seq: int = 1, count: int = 5, servable: int = 5) -> events.PoolEvent:
    root = "/srv/models"
    return events.ModelsDiscovered(**at(seq), found=count, servable=servable, root=root)


def loaded_events(seq: int, model_id: str, victims: tuple[str, ...] = ()) -> list[events.PoolEvent]:
    """The start and the end of a load."""
    started = events.LoadStarted(
        **at(seq), model_id=model_id, footprint_bytes=2_375_000, victims=victims
    )
    done = events.ModelLoaded(
        **at(seq + 1), model_id=model_id, weights_bytes=1_900_000, took_s=0.31
    )
    return [started, done]


def evicted(seq: int, model_id: str, for_model_id: str) -> events.PoolEvent:
    return events.ModelEvicted(
        **at(seq),
        model_id=model_id,
        for_model_id=for_model_id,
        idle_s=192.0,
        freed_bytes=2_280_000,
        took_s=0.04,
    )


def asked(seq: int, model_id: str) -> events.PoolEvent:
    return events.RequestStarted(
        **at(seq), request_id=f"r{seq}", model_id=model_id, client="127.0.0.1:50312"
    )


def answered(seq: int, model_id: str) -> events.PoolEvent:
    return events.RequestFinished(
        **at(seq),
        request_id=f"r{seq}",
        model_id=model_id,
        client="127.0.0.1:50312",
        reason=FinishReason.STOP,
        generated_tokens=212,
        took_s=2.61,
    )


# The states that have a snapshot test


def empty() -> Frame:
    """A host that found no model."""
    return frame(log=(found(count=0, servable=0),))


def loaded() -> Frame:
    """Three models in memory: one busy, one pinned, one next out; two on disk."""
    log = [found(), *loaded_events(2, "gemma3-1m-4bit"), *loaded_events(4, "llama-1m-fp32")]
    log += [
        events.PinChanged(**at(6), model_id="llama-1m-fp32", is_pinned=True),
        asked(7, "llama-1m-fp32"),
        answered(8, "llama-1m-fp32"),
        *loaded_events(9, "qwen3-1m-8bit"),
        asked(11, "qwen3-1m-8bit"),
        asked(12, "qwen3-1m-8bit"),
    ]
    return frame(
        busy("qwen3-1m-8bit", rank=2, model_type="qwen3", queued_requests=1),
        resident("llama-1m-fp32", rank=1, idle_s=42, is_pinned=True, weights=1_300_000),
        resident(
            "gemma3-1m-4bit",
            rank=0,
            idle_s=192,
            weights=700_000,
            is_next_victim=True,
            model_type="gemma3",
        ),
        model("mixtral-1m-4bit", weights_bytes=2_300_000, model_type="mixtral"),
        model("phi3-1m-bf16", weights_bytes=3_900_000, model_type="phi3"),
        requests=(
            request("r11", "qwen3-1m-8bit"),
            request("r12", "qwen3-1m-8bit", generated_tokens=96, client="10.0.0.7:41880"),
            request(
                "r13",
                "qwen3-1m-8bit",
                RequestState.QUEUED,
                generated_tokens=0,
                prefilled_tokens=0,
                tokens_per_s=0.0,
                client="10.0.0.9:33111",
            ),
        ),
        log=tuple(log),
        is_demo_running=True,
    )


def loading() -> Frame:
    """One model generates while another one loads and a third request waits for it."""
    log = (
        found(),
        *loaded_events(2, "qwen3-1m-8bit"),
        asked(4, "qwen3-1m-8bit"),
        asked(5, "mixtral-1m-4bit"),
        events.LoadStarted(
            **at(6), model_id="mixtral-1m-4bit", footprint_bytes=2_875_000, victims=()
        ),
    )
    return frame(
        busy("qwen3-1m-8bit", rank=0, active=1, model_type="qwen3"),
        model(
            "mixtral-1m-4bit",
            ModelState.LOADING,
            weights_bytes=2_300_000,
            headroom_bytes=575_000,
            held_bytes=2_875_000,
            queued_requests=1,
            leases=1,
            load=LoadProgress(1_000_000, 2_300_000),
            model_type="mixtral",
        ),
        model("gemma3-1m-4bit", weights_bytes=700_000, model_type="gemma3"),
        model("llama-1m-fp32", weights_bytes=1_300_000),
        model("phi3-1m-bf16", weights_bytes=3_900_000, model_type="phi3"),
        requests=(
            request("r4", "qwen3-1m-8bit"),
            request(
                "r5",
                "mixtral-1m-4bit",
                RequestState.LOADING,
                generated_tokens=0,
                prefilled_tokens=0,
                tokens_per_s=0.0,
            ),
        ),
        log=log,
    )


def evicting() -> Frame:
    """One model has left for another, a second one is leaving, a third one drains."""
    log = (
        found(),
        *loaded_events(2, "llama-1m-fp32"),
        *loaded_events(4, "gemma3-1m-4bit"),
        asked(6, "phi3-1m-bf16"),
        evicted(7, "mixtral-1m-4bit", "phi3-1m-bf16"),
        events.VictimSpared(**at(8), model_id="qwen3-1m-8bit", for_model_id="phi3-1m-bf16"),
    )
    return frame(
        busy("qwen3-1m-8bit", rank=2, active=1, model_type="qwen3"),
        busy("llama-1m-fp32", rank=1, state=ModelState.DRAINING, weights=1_300_000, active=1),
        resident(
            "gemma3-1m-4bit",
            rank=0,
            idle_s=192,
            weights=700_000,
            state=ModelState.UNLOADING,
            model_type="gemma3",
        ),
        model("mixtral-1m-4bit", weights_bytes=2_300_000, model_type="mixtral"),
        model("phi3-1m-bf16", weights_bytes=3_900_000, model_type="phi3", queued_requests=1),
        requests=(
            request("r3", "llama-1m-fp32"),
            request("r4", "qwen3-1m-8bit"),
            request(
                "r6",
                "phi3-1m-bf16",
                RequestState.WAITING,
                generated_tokens=0,
                prefilled_tokens=0,
                tokens_per_s=0.0,
            ),
        ),
        log=log,
    )


def error() -> Frame:
    """A load that failed, a folder that can't be served, a request that was refused."""
    no_room = "needs 8.1 MB but the budget is 6.0 MB, and 0 Bytes can be freed"
    log = (
        found(servable=4),
        *loaded_events(2, "llama-1m-fp32"),
        asked(4, "phi3-1m-bf16"),
        events.LoadFailed(
            **at(5), model_id="phi3-1m-bf16", reason="model.safetensors ends after 1.2 of 3.9 MB"
        ),
        events.RequestRefused(
            **at(6), request_id="r6", model_id="big", client="10.0.0.7:41880", reason=no_room
        ),
    )
    return frame(
        resident("llama-1m-fp32", rank=0, idle_s=25, weights=1_300_000, is_next_victim=True),
        model(
            "bert-base",
            is_servable=False,
            weights_bytes=0,
            headroom_bytes=0,
            model_type="bert",
            problem="no generating model: model_type bert",
        ),
        model("gemma3-1m-4bit", weights_bytes=700_000, model_type="gemma3"),
        model(
            "phi3-1m-bf16",
            ModelState.FAILED,
            weights_bytes=3_900_000,
            model_type="phi3",
            problem="model.safetensors ends after 1.2 of 3.9 MB",
        ),
        model("qwen3-1m-8bit", model_type="qwen3"),
        log=log,
    )
