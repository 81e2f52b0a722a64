"""Devices, configurations, model types: what is decided without a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from omlx_tui.engines import SamplingParams
from omlx_tui.engines.device import Device, DeviceKind, expects_cpu, read_device
from omlx_tui.engines.errors import DeviceError
from omlx_tui.engines.model_config import (
    UNSTATED_CONTEXT_TOKENS,
    context_tokens,
    read_json_object,
    sampling_defaults,
)
from omlx_tui.engines.model_types import is_supported


def a_device(kind: DeviceKind, info: dict[str, str | int]) -> Device:
    """A device as a double of MLX describes it, on a machine with 16 of 24 GB free."""
    return read_device(
        device_kind=lambda: kind,
        device_info=lambda: info,
        ram_bytes=lambda: (24_000_000_000, 16_000_000_000),
    )


def test_metal_offers_its_recommended_working_set() -> None:
    """The budget is a share of what the system lets the GPU use."""
    device = a_device("metal", {"max_recommended_working_set_size": 48_000_000_000})
    assert device.capacity_bytes == 48_000_000_000
    assert device.default_budget_bytes == int(48e9 * 0.85)


def test_cuda_offers_the_cards_memory() -> None:
    """Whatever the machine's own RAM is."""
    device = a_device("cuda", {"device_name": "RTX", "total_memory": 12_000_000_000})
    assert (device.name, device.capacity_bytes) == ("RTX", 12_000_000_000)


def test_a_cpu_offers_the_ram_that_is_free() -> None:
    """Percentages are of all the RAM, the default of what is available."""
    device = a_device("cpu", {"architecture": "x86_64"})
    assert (device.capacity_bytes, device.available_bytes) == (24_000_000_000, 16_000_000_000)
    assert device.default_budget_bytes == int(16e9 * 0.70)


def test_this_machine_can_be_read() -> None:
    """The real sources answer, and agree with the guess made without MLX."""
    device = read_device()
    assert 0 < device.default_budget_bytes < device.capacity_bytes
    assert expects_cpu() == (device.kind == "cpu")


def test_mlx_without_a_backend_says_what_to_install() -> None:
    """The name of the extra, not an ImportError from the depths."""
    assert "omlx-tui[cpu]" in str(DeviceError())


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 2048}, 2048),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 512}}, 512),
        ({"max_position_embeddings": "many", "text_config": []}, UNSTATED_CONTEXT_TOKENS),
        ({}, UNSTATED_CONTEXT_TOKENS),
    ],
)
def test_the_context_is_what_the_config_states(config: dict[str, object], tokens: int) -> None:
    """Under any of its names, also where text has a config of its own."""
    assert context_tokens(config) == tokens


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, SamplingParams(temperature=0.0)),
        ({"do_sample": False, "temperature": 0.7}, SamplingParams(temperature=0.0)),
        (
            {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 40},
            SamplingParams(temperature=0.7, top_p=0.9, top_k=40),
        ),
        ({"temperature": True, "top_p": "x"}, SamplingParams(temperature=0.0)),
    ],
)
def test_sampling_defaults_are_the_authors(
    config: dict[str, object], expected: SamplingParams
) -> None:
    """Greedy, unless generation_config.json asks for sampling."""
    assert sampling_defaults(config) == expected


def test_json_is_read_with_its_faults_named(tmp_path: Path) -> None:
    """A missing file is empty; a broken one is named."""
    assert read_json_object(tmp_path / "none.json") == {}
    broken = tmp_path / "broken.json"
    for content in (b"{", b"\xff\xfe", b"[1]", b"[" * 100_000):
        broken.write_bytes(content)
        with pytest.raises(ValueError, match=r"broken\.json"):
            read_json_object(broken)


@pytest.mark.parametrize(
    ("model_type", "supported"),
    [
        ("llama", True),
        ("mistral", True),  # renamed by mlx-lm
        ("phi-msft", True),  # renamed, and no module name
        ("gemma3_text", True),
        ("lfm2-vl", True),  # a module with a hyphen in its name
        ("cache", False),  # a module, but no model
        ("bert", False),
        ("x" * 5000, False),
        ("../llama", False),
        ("", False),
    ],
)
def test_types_are_those_of_the_installed_mlx_lm(model_type: str, supported: bool) -> None:
    """Read from its source, with its own renames."""
    assert is_supported(model_type) is supported
