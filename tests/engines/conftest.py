"""A real backend on the sample models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from omlx_tui.engines import Engine, ModelSpec, SchedulerConfig
from omlx_tui.engines.backend import MLXBackend
from tests.engines.driving import LLAMA


@pytest.fixture
async def backend() -> AsyncIterator[MLXBackend]:
    backend = MLXBackend(SchedulerConfig())
    yield backend
    await backend.close()


@pytest.fixture
async def llama(backend: MLXBackend, sample_models: Path) -> Engine:
    spec = ModelSpec(model_id=LLAMA, path=sample_models / LLAMA)
    return await backend.load(spec, lambda _: None)
