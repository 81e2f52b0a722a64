"""How the tests of the real backend load a model and ask it something."""

from __future__ import annotations

from pathlib import Path

from omlx_tui.engines import Engine, Finished, ModelSpec, TextDelta
from omlx_tui.engines.backend import MLXBackend
from tests.fakes import a_request

LLAMA = "llama-1m-fp32"
PROMPT = "Tell me a story about a fox and a lantern."
SAMPLES = ("gemma3-2.6m-4bit", LLAMA, "mixtral-4e-4bit", "phi3-1m-bf16", "qwen3-1m-8bit")


async def answer(
    engine: Engine, text: str = PROMPT, request_id: str = "r", **facts: object
) -> tuple[str, Finished]:
    """The whole text, and how it ended."""
    prepared = await engine.prepare(a_request(text, request_id=request_id, **facts))
    pieces: list[str] = []
    async for event in engine.generate(prepared):
        if isinstance(event, TextDelta):
            pieces.append(event.text)
        elif isinstance(event, Finished):
            return "".join(pieces), event
    raise AssertionError("the generation ended without Finished")


async def load(backend: MLXBackend, root: Path, model_id: str) -> Engine:
    return await backend.load(ModelSpec(model_id=model_id, path=root / model_id), lambda _: None)
