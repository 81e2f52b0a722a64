"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

SAMPLE_MODELS = Path(__file__).parents[1] / "sample_models"


@pytest.fixture
def sample_models() -> Path:
    """The five models that travel with the project."""
    return SAMPLE_MODELS
