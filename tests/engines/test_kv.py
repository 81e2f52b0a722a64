"""KV costs against what mlx-lm really holds, and who may run under a budget."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from omlx_tui.engines import (
    Engine,
    Finished,
    FinishReason,
    KVCosts,
    KVShape,
    ModelSpec,
    PreparedRequest,
    SamplingParams,
    SchedulerConfig,
    TextDelta,
)
from omlx_tui.engines.admission import KVAdmission
from omlx_tui.engines.backend import MLXBackend
from omlx_tui.engines.batch import ModelBatch
from omlx_tui.engines.commands import Submit, TokenOutput
from omlx_tui.engines.kv import KVLayers
from tests.engines.driving import LLAMA, PROMPT, SAMPLES, answer, load
from tests.fakes import a_request


@dataclass
class Measured:
    """What a batch held after each of its steps, seen on the MLX thread."""

    kv_bytes: list[int] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Each step's live KV bytes, beside how many tokens it brought; no answer stops early."""
    seen = Measured()
    real_step, real_submit = ModelBatch.step, ModelBatch.submit

    def step(batch: ModelBatch) -> object:
        outputs = real_step(batch)
        seen.kv_bytes.append(batch.kv_bytes)
        seen.generated.append(sum(isinstance(output, TokenOutput) for output in outputs))
        return outputs

    def submit(batch: ModelBatch, command: Submit) -> None:
        real_submit(batch, replace(command, stop_tokens=()))

    monkeypatch.setattr(ModelBatch, "step", step)
    monkeypatch.setattr(ModelBatch, "submit", submit)
    return seen


@pytest.fixture
async def uncached() -> MLXBackend:
    """A backend that reads every prompt anew."""
    return MLXBackend(SchedulerConfig(prefix_cache=False))


@pytest.mark.parametrize("model_id", SAMPLES)
async def test_the_bytes_of_a_sequence_are_those_that_mlx_lm_holds(
    uncached: MLXBackend, sample_models: Path, model_id: str, measured: Measured
) -> None:
    """To the byte, at every token of answers from a short and from a long prompt."""
    engine = await load(uncached, sample_models, model_id)
    shape = engine.kv_costs.shape
    for text, max_tokens in (("Hello!", 270), ("a fox " * 250, 30)):
        prepared = await engine.prepare(a_request(text, max_tokens=max_tokens))
        measured.kv_bytes.clear()
        measured.generated.clear()
        async for _ in engine.generate(prepared):
            pass
        tokens, compared = len(prepared.prompt), 0
        # The last step has dropped the row; so nothing is left to compare there.
        for kv_bytes, generated in zip(
            measured.kv_bytes[:-1], measured.generated[:-1], strict=True
        ):
            tokens += generated
            if generated:
                assert kv_bytes == shape.bytes_for(tokens)
                compared += 1
        assert measured.kv_bytes[-1] == 0
        assert compared == max_tokens - 1
    await uncached.close()


@pytest.mark.parametrize("model_id", SAMPLES)
async def test_a_batch_never_holds_more_than_was_counted_for_it(
    sample_models: Path, model_id: str, measured: Measured
) -> None:
    """Prompts of very different lengths, arriving at different times, padded and continued."""
    backend = MLXBackend(SchedulerConfig(prefill_step_tokens=64))
    engine = await load(backend, sample_models, model_id)
    texts = ("Hello!", "a fox " * 130, PROMPT, "a lantern " * 60, "Hello!", "a fox " * 100)
    prepared = [
        await engine.prepare(a_request(text, request_id=f"r{i}", max_tokens=20 + 15 * i))
        for i, text in enumerate(texts)
    ]

    async def run(one: PreparedRequest) -> None:
        async for _ in engine.generate(one):
            pass

    for _ in range(2):
        first = [asyncio.create_task(run(one)) for one in prepared[:3]]
        await first[0]
        await asyncio.gather(*first, *(run(one) for one in prepared[3:]))
    longest_prompt = max(len(one.prompt) for one in prepared)
    longest = max(len(one.prompt) + one.max_tokens for one in prepared)
    counted = len(prepared) * engine.kv_costs.of_one(longest_prompt, longest)
    assert 0 < max(measured.kv_bytes) <= counted
    await backend.close()


def test_a_window_stops_growing() -> None:
    """What has left it costs nothing, but while a prompt is read its slice is held as well."""
    shape = KVShape((KVLayers(10), KVLayers(100, 128)), constant_bytes=7)
    assert shape.bytes_per_token == 110
    assert shape.bytes_for(256) == 256 * 10 + 128 * 100 + 7
    assert shape.bytes_for(257) == 512 * 10 + 128 * 100 + 7
    reading = shape.most_bytes_for(1000, 1001, prefill_step=64)
    assert reading == 1280 * 10 + (128 + 63) * 100 + 7


COSTS = KVCosts(shape=KVShape((KVLayers(1),)), prefill_step=512, context_tokens=4096)


def a_prepared(
    request_id: str, prompt_tokens: int, max_tokens: int, *, is_open: bool = False
) -> PreparedRequest:
    request = a_request(request_id=request_id, max_tokens=None if is_open else max_tokens)
    return PreparedRequest(
        request=request, prompt=tuple(range(prompt_tokens)), max_tokens=max_tokens
    )


def test_a_row_costs_as_much_as_the_longest_in_the_batch() -> None:
    """A rectangle: one long request makes its neighbours expensive."""
    admission = KVAdmission("m", COSTS)
    admission.budget_bytes = 3 * COSTS.of_one(100, 1000)
    for index in range(3):
        admission.enqueue(a_prepared(f"short{index}", 5, 5))
    admission.enqueue(a_prepared("long", 100, 900))
    assert admission.admit() == ("short0", "short1", "short2")
    admission.withdraw("short1")
    assert admission.admit() == ("long",)


def test_nobody_overtakes_the_oldest_waiter() -> None:
    """Even where a younger one would fit."""
    admission = KVAdmission("m", COSTS)
    admission.budget_bytes = COSTS.of_one(100, 1000)
    admission.enqueue(a_prepared("running", 10, 10))
    admission.enqueue(a_prepared("large", 100, 900))
    admission.enqueue(a_prepared("small", 1, 1))
    assert admission.admit() == ("running",)
    assert admission.admit() == ()
    assert not admission.withdraw("large")
    assert admission.admit() == ("small",)


def test_who_was_accepted_under_a_larger_budget_runs_when_alone() -> None:
    """A budget that shrinks leaves nobody waiting for ever."""
    admission = KVAdmission("m", COSTS)
    admission.enqueue(a_prepared("running", 10, 10))
    assert admission.admit() == ("running",)
    admission.enqueue(a_prepared("large", 100, 3000))
    admission.budget_bytes = 0
    assert admission.budget_bytes == COSTS.floor_bytes
    assert admission.admit() == ()
    assert admission.withdraw("running")
    assert admission.admit() == ("large",)


def test_an_open_answer_is_cut_to_what_fits() -> None:
    """To the last token that does."""
    admission = KVAdmission("m", COSTS)
    admission.budget_bytes = 2000
    settled = admission.settle(a_prepared("r", 100, 3000, is_open=True))
    longest = 100 + settled.max_tokens
    assert COSTS.of_one(100, longest) <= 2000 < COSTS.of_one(100, longest + 1)


async def test_a_sample_model_serves_under_its_floor(
    backend: MLXBackend, sample_models: Path
) -> None:
    """A headroom smaller than one sequence is raised, and open answers end inside it."""
    spec = ModelSpec(model_id=LLAMA, path=sample_models / LLAMA, kv_budget_bytes=1)
    engine = await backend.load(spec, lambda _: None)
    assert engine.kv_budget_bytes == engine.kv_costs.floor_bytes
    prepared = await engine.prepare(a_request("Hello!"))
    assert 256 < len(prepared.prompt) + prepared.max_tokens < engine.context_tokens
    assert (await answer(engine, request_id="r"))[1].reason is not FinishReason.ERROR


async def test_waiting_for_room_changes_no_answer(
    backend: MLXBackend, sample_models: Path, measured: Measured
) -> None:
    """A dozen requests through a budget for two; the live caches stay inside it."""
    engine = await load(backend, sample_models, LLAMA)
    alone, _ = await answer(engine, max_tokens=30)
    prompt = await engine.prepare(a_request(PROMPT, max_tokens=30))
    budget = 2 * engine.kv_costs.of_one(len(prompt.prompt), len(prompt.prompt) + 30)
    engine.set_kv_budget(budget)
    measured.kv_bytes.clear()
    ends = await asyncio.gather(
        *(answer(engine, request_id=f"r{i}", max_tokens=30) for i in range(12))
    )
    assert {text for text, _ in ends} == {alone}
    assert 0 < max(measured.kv_bytes) <= (engine.kv_budget_bytes or 0)


async def test_a_stop_string_makes_room(llama: Engine) -> None:
    """The batch drops the row before the next one joins it."""
    whole, _ = await answer(llama, max_tokens=60)
    llama.set_kv_budget(0)
    stop = (whole[10:16],)
    ends = await asyncio.gather(*(answer(llama, request_id=f"r{i}", stop=stop) for i in range(4)))
    assert {end.reason for _, end in ends} == {FinishReason.STOP}


async def test_a_limit_lowers_the_context_and_never_raises_it(
    backend: MLXBackend, sample_models: Path
) -> None:
    """Prompt and answer stay within it."""
    path = sample_models / LLAMA
    low = await backend.load(
        ModelSpec(model_id="low", path=path, context_limit=100), lambda _: None
    )
    assert low.context_tokens == 100
    prepared = await low.prepare(a_request("Hello!"))
    assert len(prepared.prompt) + prepared.max_tokens == 100
    high = await backend.load(
        ModelSpec(model_id="high", path=path, context_limit=10**6), lambda _: None
    )
    assert high.context_tokens == 1024


async def test_a_models_own_sampling_comes_before_its_authors(
    backend: MLXBackend, sample_models: Path
) -> None:
    """And after the request's."""
    path = sample_models / LLAMA
    hot = SamplingParams(temperature=1.5, seed=11)
    plain = await load(backend, sample_models, LLAMA)
    engine = await backend.load(ModelSpec(model_id="hot", path=path, sampling=hot), lambda _: None)
    asked, _ = await answer(plain, sampling=hot, max_tokens=20)
    assert (await answer(engine, max_tokens=20))[0] == asked
    greedy, _ = await answer(plain, max_tokens=20)
    cold = SamplingParams(temperature=0.0)
    assert (await answer(engine, sampling=cold, max_tokens=20))[0] == greedy != asked


async def test_live_bytes_fall_when_a_client_leaves(backend: MLXBackend, llama: Engine) -> None:
    """Also when no step follows that would report it."""
    prepared = await llama.prepare(a_request(PROMPT))
    async with aclosing(llama.generate(prepared)) as events:
        while not isinstance(await anext(events), TextDelta):
            pass
        assert llama.stats().kv_bytes > 0
    await backend.drop_buffer_cache()
    assert llama.stats().kv_bytes == 0
    assert isinstance((await answer(llama, max_tokens=1))[1], Finished)
