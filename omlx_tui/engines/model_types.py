"""Which model types the installed mlx-lm can run, found out without importing MLX."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path


def is_supported(model_type: str) -> bool:
    """Whether mlx-lm has a module for a ``model_type`` of a config.json."""
    folder = _mlx_lm_folder()
    if folder is None or not model_type.isidentifier():
        # mlx-lm spells every type as a module name, but for the few that it renames.
        return folder is not None and model_type in _renamed_types()
    module = _renamed_types().get(model_type, model_type)
    return (folder / "models" / f"{module}.py").is_file()


def _mlx_lm_folder() -> Path | None:
    spec = importlib.util.find_spec("mlx_lm")
    locations = list(spec.submodule_search_locations or ()) if spec else []
    return Path(locations[0]) if locations else None


@cache
def _renamed_types() -> dict[str, str]:
    """mlx-lm's own table ``MODEL_REMAPPING``, read from its source: importing it takes seconds."""
    folder = _mlx_lm_folder()
    if folder is None:
        return {}
    tree = ast.parse((folder / "utils.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if node.targets[0].id == "MODEL_REMAPPING":
            table: dict[str, str] = ast.literal_eval(node.value)
            return table
    return {}
