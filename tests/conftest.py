"""What all tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import structlog
from hypothesis import HealthCheck

# Of the pool's rule-based machine: 4,000 steps in CI, 100,000 by `make soak`.
_COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck)}
hypothesis.settings.register_profile(
    "ci", max_examples=100, stateful_step_count=40, derandomize=True, **_COMMON
)
hypothesis.settings.register_profile("slow", max_examples=2000, stateful_step_count=50, **_COMMON)
hypothesis.settings.load_profile("ci")

SAMPLE_MODELS = Path(__file__).parents[1] / "sample_models"


@pytest.fixture
def sample_models() -> Path:
    """The five models that travel with the project."""
    return SAMPLE_MODELS


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Commands configure the log for their process; here many share one."""
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
