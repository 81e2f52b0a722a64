"""A pool over the fake backend, with four models of 400 bytes and one of 1200."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from omlx_tui.pool import EnginePool
from tests.fakes import FakeBackend, ManualClock
from tests.model_folders import write_model

# Footprints: 500 bytes each (400 and a quarter), and 1500.
SMALL_MODELS = ("a", "b", "c", "d")
LARGE_MODEL = "large"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in SMALL_MODELS:
        write_model(tmp_path / name, weights_bytes=400)
    write_model(tmp_path / LARGE_MODEL, weights_bytes=1200)
    return tmp_path


@pytest.fixture
async def pool(models: Path, backend: FakeBackend, clock: ManualClock) -> AsyncIterator[EnginePool]:
    """Room for three small models, or the large one alone."""
    pool = EnginePool(1500, backend=backend, clock=clock, wall_clock=lambda: 1.7e9)
    pool.discover_models(models)
    yield pool
    backend.load_gate.open()
    backend.unload_gate.open()
    await pool.close()
