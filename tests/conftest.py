"""What all tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

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
