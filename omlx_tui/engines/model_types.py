"""Which model types the installed mlx-lm can run, found out without importing MLX."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

_MODULE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


@cache
def is_supported(model_type: str) -> bool:
    """Whether mlx-lm has a module for a ``model_type`` of a config.json."""
    folder = _mlx_lm_folder()
    module = _renamed_types().get(model_type, model_type)
    if folder is None or not _MODULE_NAME.fullmatch(module):
        return False
    path = folder / "models" / f"{module}.py"
    # The folder holds helpers too; a model's module defines its arguments.
    return path.is_file() and "class ModelArgs" in path.read_text(encoding="utf-8")


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
