"""The real backend: text, seeds, stops, memory, and loads that don't stop the others."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import shutil
import threading
import weakref
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import mlx.core as mx
import pytest

from omlx_tui.engines import (
    Engine,
    EngineClosedError,
    Finished,
    FinishReason,
    LoadFailedError,
    LoadProgress,
    Message,
    ModelSpec,
    SamplingParams,
    SchedulerConfig,
    TextDelta,
)
from omlx_tui.engines import worker as worker_module
from omlx_tui.engines.backend import MLXBackend
from omlx_tui.engines.batch import ModelBatch
from omlx_tui.engines.batched import BatchedEngine
from omlx_tui.engines.errors import EngineLostError
from tests.engines.driving import LLAMA, PROMPT, SAMPLES, answer, load
from tests.fakes import a_request


@pytest.mark.parametrize("model_id", SAMPLES)
async def test_every_sample_model_speaks(
    backend: MLXBackend, sample_models: Path, model_id: str
) -> None:
    """All five architectures load offline, answer alone and in a batch, and stop by themselves."""
    engine = await load(backend, sample_models, model_id)
    questions = ("What is the capital of France?", "Hello!", PROMPT)
    ends = await asyncio.gather(
        *(answer(engine, text, f"r{i}", max_tokens=400) for i, text in enumerate(questions))
    )
    assert all(text.strip() for text, _ in ends)
    assert ends[0][1].reason is FinishReason.STOP


async def test_a_batch_says_what_each_would_have_said_alone(llama: Engine) -> None:
    """Continuous batching changes the speed, not the answers."""
    questions = ("Hello!", PROMPT, "What is the opposite of hot?")
    alone = [(await answer(llama, text, max_tokens=12))[0] for text in questions]
    together = await asyncio.gather(
        *(answer(llama, text, f"r{i}", max_tokens=12) for i, text in enumerate(questions))
    )
    assert [text for text, _ in together] == alone


async def test_more_requests_than_a_batch_holds_wait_their_turn(
    sample_models: Path,
) -> None:
    """With room for two, seven are all served."""
    backend = MLXBackend(SchedulerConfig(max_batch_size=2, prefill_batch_size=1))
    engine = await load(backend, sample_models, LLAMA)
    ends = await asyncio.gather(
        *(answer(engine, request_id=f"r{i}", max_tokens=6) for i in range(7))
    )
    assert [end.generated_tokens for _, end in ends] == [6] * 7
    await backend.close()


async def test_a_long_prompt_is_read_in_slices(sample_models: Path) -> None:
    """A prompt longer than the prefill step takes several turns, with progress for each."""
    backend = MLXBackend(SchedulerConfig(prefill_step_tokens=64))
    engine = await load(backend, sample_models, LLAMA)
    prepared = await engine.prepare(a_request("a fox " * 100, max_tokens=2))
    events = [event async for event in engine.generate(prepared)]
    steps = [e.processed_tokens for e in events if not isinstance(e, TextDelta | Finished)]
    assert len(steps) >= 4
    assert steps == sorted(steps)
    assert steps[-1] == len(prepared.prompt)
    await backend.close()


async def test_a_seed_repeats_an_answer_whoever_else_is_served(llama: Engine) -> None:
    """Sampled text depends on the request's own seed, not on its neighbours."""
    hot = SamplingParams(temperature=1.0, top_p=0.95, top_k=2000, min_p=0.01, seed=7)
    first, _ = await answer(llama, sampling=hot, max_tokens=30)
    others = [
        answer(llama, "Hello!", f"o{i}", sampling=SamplingParams(temperature=1.3), max_tokens=30)
        for i in range(3)
    ]
    (second, _), *_ = await asyncio.gather(answer(llama, sampling=hot, max_tokens=30), *others)
    assert second == first
    other = SamplingParams(temperature=1.0, top_p=0.95, seed=8)
    assert (await answer(llama, sampling=other, max_tokens=30))[0] != first


async def test_penalties_change_the_answer(llama: Engine) -> None:
    """They reach mlx-lm's logits processors."""
    plain, _ = await answer(llama, max_tokens=60)
    penalised = SamplingParams(presence_penalty=2.0, frequency_penalty=2.0)
    assert (await answer(llama, sampling=penalised, max_tokens=60))[0] != plain


async def test_a_stop_string_ends_the_answer_and_is_not_part_of_it(llama: Engine) -> None:
    """Also when it begins and ends in the middle of tokens; the batch forgets the request."""
    whole, _ = await answer(llama, max_tokens=60)
    middle = whole[len(whole) // 2 - 3 : len(whole) // 2 + 4]
    text, end = await answer(llama, max_tokens=60, stop=("never said", middle))
    assert text == whole[: whole.index(middle)]
    assert end.reason is FinishReason.STOP
    assert isinstance(llama, BatchedEngine)
    assert not llama.has_active_requests()


async def test_characters_are_never_split(llama: Engine) -> None:
    """No piece of text ever holds half a character, whatever the tokens are."""
    wild = SamplingParams(temperature=2.0, seed=3)
    prepared = await llama.prepare(a_request("Ünïcødé 🦊🏮 狐", sampling=wild, max_tokens=200))
    assert prepared.prompt
    pieces = [e.text async for e in llama.generate(prepared) if isinstance(e, TextDelta)]
    "".join(pieces).encode("utf-8")


async def test_messages_with_roles_reach_the_template(llama: Engine) -> None:
    """A system message and earlier turns make a longer prompt."""
    short = await llama.prepare(a_request("Hello!"))
    request = a_request("Hello!")
    turns = (
        Message("system", "You are kind."),
        Message("user", "Hi."),
        Message("assistant", "Hi."),
    )
    longer = await llama.prepare(
        type(request)(request_id="r", messages=(*turns, *request.messages))
    )
    assert len(longer.prompt) > len(short.prompt)


async def test_an_answer_ends_where_the_context_does(llama: Engine) -> None:
    """Without a limit of its own, prompt and answer together never exceed the context."""
    prepared = await llama.prepare(a_request("Hello!"))
    assert len(prepared.prompt) + prepared.max_tokens == llama.context_tokens


async def test_half_precision_is_raised_on_the_cpu(sample_models: Path) -> None:
    """bf16 weights take twice their file's size, unless the setting says no."""
    if mx.default_device() != mx.cpu:
        pytest.skip("only the CPU device raises")
    sizes: list[int] = []
    for raised in (True, False):
        backend = MLXBackend(SchedulerConfig(raise_to_fp32_on_cpu=raised))
        sizes.append((await load(backend, sample_models, "phi3-1m-bf16")).weights_bytes)
        await backend.close()
    assert sizes[0] == 2 * sizes[1]


async def test_other_models_go_on_while_one_loads(
    sample_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two slices of a load, the model that generates makes a step.

    The hook runs on the MLX thread after each slice; steps are counted on that thread too, so the
    order is that of the work itself. The client sees the tokens while the load goes on.
    """
    steps_made = 0
    steps_at_slice: list[int] = []
    real_step = ModelBatch.step

    def counted_step(batch: ModelBatch) -> object:
        nonlocal steps_made
        steps_made += 1
        return real_step(batch)

    def on_slice(model_id: str, progress: LoadProgress) -> None:
        if model_id != LLAMA:
            steps_at_slice.append(steps_made)

    monkeypatch.setattr(ModelBatch, "step", counted_step)
    backend = MLXBackend(SchedulerConfig(load_slice_bytes=128 * 1024), slice_hook=on_slice)
    talker = await load(backend, sample_models, LLAMA)
    prepared = await talker.prepare(a_request(PROMPT, max_tokens=900))
    seen_during_load = 0
    async with aclosing(talker.generate(prepared)) as events:
        while not isinstance(await anext(events), TextDelta):
            pass
        loading = asyncio.create_task(load(backend, sample_models, "phi3-1m-bf16"))
        async for event in events:
            if loading.done():
                break
            seen_during_load += isinstance(event, TextDelta)
    await loading
    assert len(steps_at_slice) > 10
    assert [b - a for a, b in itertools.pairwise(steps_at_slice)] == [1] * (len(steps_at_slice) - 1)
    assert seen_during_load >= len(steps_at_slice) // 2
    await backend.close()


async def test_an_unload_is_measured_exactly_while_another_model_generates(
    backend: MLXBackend, llama: Engine, sample_models: Path
) -> None:
    """The freed bytes are the model's own, whatever its neighbour does meanwhile."""
    other = await load(backend, sample_models, "qwen3-1m-8bit")
    prepared = await llama.prepare(a_request(PROMPT, max_tokens=300))
    async with aclosing(llama.generate(prepared)) as events:
        while not isinstance(await anext(events), TextDelta):
            pass
        freed = await backend.unload(other)
    assert other.weights_bytes <= freed <= other.weights_bytes + 4096


async def test_nothing_keeps_an_unloaded_model_alive(
    sample_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weak reference is dead after the unload, also after a request and a dropped stream."""
    references: list[weakref.ref[object]] = []
    real_batch = worker_module.ModelBatch

    def watched(model: object, *args: object) -> object:
        references.append(weakref.ref(model))
        return real_batch(model, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(worker_module, "ModelBatch", watched)
    backend = MLXBackend(SchedulerConfig())
    for model_id in SAMPLES:
        engine = await load(backend, sample_models, model_id)
        await answer(engine, max_tokens=3)
        prepared = await engine.prepare(a_request(PROMPT, request_id="dropped"))
        async with aclosing(engine.generate(prepared)) as events:
            await anext(events)
        await backend.unload(engine)
    assert [reference() for reference in references] == [None] * len(SAMPLES)
    await backend.close()


async def test_memory_is_zero_after_close(sample_models: Path) -> None:
    """MLX itself says so; and the thread is gone."""
    gc.collect()
    before = mx.get_active_memory()
    backend = MLXBackend(SchedulerConfig())
    engine = await load(backend, sample_models, LLAMA)
    await answer(engine, max_tokens=3)
    await load(backend, sample_models, "mixtral-4e-4bit")
    await backend.close()
    assert mx.get_active_memory() == before
    assert backend.memory().cache_bytes < 100
    assert not any(thread.name == "mlx" for thread in threading.enumerate())


def damaged(root: Path, target: Path, damage: Callable[[Path], object]) -> ModelSpec:
    """A copy of the llama with a fault."""
    shutil.copytree(root / LLAMA, target)
    damage(target)
    return ModelSpec(model_id="damaged", path=target)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "tokenizer.json").write_text("{"),
        lambda path: (path / "config.json").write_text(
            json.dumps({**json.loads((path / "config.json").read_text()), "hidden_size": 64})
        ),
        lambda path: (path / "model.safetensors").write_bytes(
            (path / "model.safetensors").read_bytes()[:500_000]
        ),
    ],
    ids=["tokenizer", "shape", "truncated"],
)
async def test_files_that_break_a_load_leave_the_backend_whole(
    backend: MLXBackend,
    llama: Engine,
    sample_models: Path,
    tmp_path: Path,
    damage: Callable[[Path], object],
) -> None:
    """One line of reason, no bytes, and the other models go on."""
    before = backend.memory().active_bytes
    with pytest.raises(LoadFailedError) as failure:
        await backend.load(damaged(sample_models, tmp_path / "m", damage), lambda _: None)
    assert "\n" not in str(failure.value)
    assert backend.memory().active_bytes <= before
    assert (await answer(llama, max_tokens=3))[1].generated_tokens == 3


async def test_a_step_that_raises_ends_its_requests_and_the_engine_goes_on(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each running request gets its error; the next request is served."""
    real_step = ModelBatch.step

    def failing_step(batch: ModelBatch) -> object:
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(ModelBatch, "step", failing_step)
    ends = await asyncio.gather(*(answer(llama, request_id=f"r{i}") for i in range(2)))
    assert {(end.reason, end.detail) for _, end in ends} == {(FinishReason.ERROR, "out of memory")}
    monkeypatch.setattr(ModelBatch, "step", real_step)
    assert (await answer(llama, max_tokens=2))[1].reason is FinishReason.LENGTH


async def test_when_the_mlx_thread_dies_everybody_hears_of_it(
    backend: MLXBackend, llama: Engine, sample_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running requests and loads end with an error, the listener is told, the next load works."""
    lost: list[str] = []
    backend.watch_loss(lost.append)
    real_step = worker_module.MLXWorker.step

    def dying_step(worker: object) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr(worker_module.MLXWorker, "step", dying_step)
    loading = asyncio.create_task(load(backend, sample_models, "qwen3-1m-8bit"))
    _, end = await answer(llama)
    assert end.reason is FinishReason.ERROR
    assert "killed" in end.detail
    with pytest.raises(EngineLostError, match="killed"):
        await loading
    assert len(lost) == 1
    with pytest.raises(EngineClosedError, match="killed"):
        await answer(llama)
    monkeypatch.setattr(worker_module.MLXWorker, "step", real_step)
    again = await load(backend, sample_models, LLAMA)
    assert (await answer(again, max_tokens=2))[1].reason is FinishReason.LENGTH


async def test_a_tokenizer_that_fails_ends_one_request_and_no_other(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that the tokenizer does not know is the end of that answer, with its reason."""
    from omlx_tui.engines.answers import AnswerReader, Piece

    real_feed = AnswerReader.feed
    readers: list[AnswerReader] = []

    def failing_feed(reader: AnswerReader, token: int, *rest: None) -> list[Piece]:
        if reader not in readers:
            readers.append(reader)
        if reader is readers[0]:
            raise IndexError("no such token")
        return real_feed(reader, token, *rest)

    monkeypatch.setattr(AnswerReader, "feed", failing_feed)
    ends = await asyncio.gather(
        *(answer(llama, request_id=f"r{i}", max_tokens=4) for i in range(3))
    )
    reasons = sorted(end.reason for _, end in ends)
    assert reasons == [FinishReason.ERROR, FinishReason.LENGTH, FinishReason.LENGTH]
    assert not llama.has_active_requests()


async def test_a_prompt_does_not_wait_for_another_models_tokenizer(
    backend: MLXBackend, llama: Engine, sample_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer that takes its time to load holds up its own model only."""
    from omlx_tui.engines import backend as backend_module

    may_go_on = threading.Event()
    real_read = backend_module._read_folder

    def slow_read(spec: ModelSpec) -> object:
        may_go_on.wait()
        return real_read(spec)

    monkeypatch.setattr(backend_module, "_read_folder", slow_read)
    loading = asyncio.create_task(load(backend, sample_models, "qwen3-1m-8bit"))
    assert (await answer(llama, max_tokens=2))[0]
    assert not loading.done()
    may_go_on.set()
    await loading
