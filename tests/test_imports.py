"""What a room imports when it is imported: the promise that a linter can't see."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("mlx", "mlx_lm", "transformers", "textual", "websockets")


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("omlx_tui.pool", ()),
        ("omlx_tui.engines", ()),
        ("omlx_tui.engines.backend", ()),
        ("omlx_tui.gateway", ("websockets",)),
        ("omlx_tui.host", ("websockets",)),
        ("omlx_tui.console.app", ("textual",)),
        ("omlx_tui.cli", ("websockets",)),
    ],
)
def test_a_module_brings_only_what_it_needs(module: str, allowed: tuple[str, ...]) -> None:
    """MLX takes seconds to import: it comes with the first model, on its own thread."""
    program = f"import {module}, sys; print(*sorted(m for m in {HEAVY!r} if m in sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(result.stdout.split()) <= set(allowed)


def test_discovery_imports_no_mlx(tmp_path: object) -> None:
    """Sizes and types come from files: a listing is instant."""
    program = (
        "import sys; from omlx_tui.pool import EnginePool; "
        f"pool = EnginePool(10**9); pool.discover_models({str(tmp_path)!r}); "
        "print([m for m in sys.modules if m.split('.')[0] in ('mlx', 'mlx_lm')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
