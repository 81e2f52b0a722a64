"""What ``omlx-tui config`` and ``omlx-tui models`` print, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from omlx_tui.sizes import format_bytes

if TYPE_CHECKING:
    from omlx_tui.pool.discovery import FoundModel
    from omlx_tui.settings import LoadedSettings
    from omlx_tui.state import OperatorState


def show_models(found: Sequence[FoundModel], roots: Iterable[Path], *, as_json: bool) -> None:
    """Every model that was found, servable or not."""
    if as_json:
        typer.echo(json.dumps([_as_facts(model) for model in found], indent=2))
        return
    if not found:
        folders = ", ".join(str(root) for root in roots)
        typer.echo(f"No models in {folders}. Name another folder with --models DIR.")
        return
    lines = [
        (
            model.model_id,
            model.model_type or "–",
            format_bytes(model.weights_bytes) if model.weights_bytes else "–",
            model.problem or "servable",
        )
        for model in found
    ]
    _print_columns(("MODEL", "TYPE", "WEIGHTS", "STATUS"), lines, right=2)


def show_settings(
    loaded: LoadedSettings, state: OperatorState, state_file: Path, *, as_json: bool
) -> None:
    """Every setting, its value and who set it; then what the operator changed since."""
    from omlx_tui.settings.report import rows

    remembered = list(_remembered(state))
    if as_json:
        facts = {
            "file": str(loaded.file) if loaded.file else None,
            "settings": {
                row.key: {
                    "value": row.value,
                    "source": row.origin.kind.value,
                    "where": row.origin.where or None,
                }
                for row in rows(loaded)
            },
            "remembered": {"file": str(state_file), "values": dict(remembered)},
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    lines = [(row.key, _as_text(row.value), str(row.origin)) for row in rows(loaded)]
    place = f"the console, in {state_file}"
    lines += [(key, _as_text(value), place) for key, value in remembered]
    _print_columns(("SETTING", "VALUE", "FROM"), lines)


def _remembered(state: OperatorState) -> Iterator[tuple[str, object]]:
    """In the settings' own words; they win over what stands above them."""
    from omlx_tui.settings.sources import dotted
    from omlx_tui.settings.values import format_size, format_ttl

    if state.budget_bytes is not None:
        yield "max_model_memory", format_size(state.budget_bytes)
    for model_id, is_pinned in state.pins.items():
        yield dotted(("model", model_id, "pin")), is_pinned
    for model_id, ttl_s in state.ttl_s.items():
        yield dotted(("model", model_id, "ttl")), format_ttl(ttl_s)


def _as_text(value: object) -> str:
    from omlx_tui.settings.example import as_toml

    if value is None or value == []:
        return "–"
    return value if isinstance(value, str) else as_toml(value)


def _as_facts(model: FoundModel) -> dict[str, object]:
    return {
        "id": model.model_id,
        "path": str(model.path),
        "model_type": model.model_type,
        "weights_bytes": model.weights_bytes,
        "is_servable": not model.problem,
        "problem": model.problem or None,
    }


def _print_columns(
    headings: Sequence[str], lines: Iterable[Sequence[str]], *, right: int | None = None
) -> None:
    """Aligned, and never cut: a terminal wraps a long line, a pipe wants all of it.

    Cells hold text from outside: neither markup nor anything that moves a cursor gets through.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    from omlx_tui.console.safe_text import safe_str

    cells = [headings, *([safe_str(cell) for cell in line] for line in lines)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    console = Console(highlight=False)
    for number, line in enumerate(cells):
        padded = [
            " " * gap + cell if column == right else cell + " " * gap
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            for gap in [width - cell_len(cell)]
        ]
        text = Text("  ".join(padded).rstrip(), style="" if number else "bold")
        console.print(text, soft_wrap=True)
