"""A load as many small steps: build lazily, then evaluate the weights a slice at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from omlx_tui.engines.commands import BeginLoad
from omlx_tui.engines.types import LoadProgress


class LoadJob:
    """One model on its way into memory. Lives on the MLX thread.

    Each ``step`` either builds the model without reading its weights or evaluates one slice.
    Dropping the job between two steps gives back all that it had read.
    """

    def __init__(self, command: BeginLoad, *, slice_bytes: int, raise_to_fp32: bool) -> None:
        self.engine_key = command.engine_key
        self._path = command.path
        self._slice_bytes = slice_bytes
        self._raise_to_fp32 = raise_to_fp32
        self._model: nn.Module | None = None
        self._slices: Iterator[Sequence[mx.array]] = iter(())
        self._done_bytes = 0
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of all weights as they will be held; 0 before the first step."""
        return self._total_bytes

    def step(self) -> LoadProgress:
        """Do the next bit of work; the load is complete when done equals total."""
        if self._model is None:
            self._build()
        else:
            arrays = next(self._slices)
            mx.eval(*arrays)  # pyright: ignore[reportUnknownMemberType]
            self._done_bytes += sum(array.nbytes for array in arrays)
        return LoadProgress(self._done_bytes, self._total_bytes)

    def take_model(self) -> nn.Module:
        """Hand over the loaded model; the job keeps no reference."""
        model = self._model
        if model is None or self._done_bytes < self._total_bytes:
            raise RuntimeError("take_model() before the last slice")
        self.release()
        return model

    def release(self) -> None:
        """Let go of the model and of what has been read of it."""
        self._model = None
        self._slices = iter(())

    def _build(self) -> None:
        model, _ = load_model(self._path, lazy=True)
        _require_batchable_caches(model)
        if self._raise_to_fp32:
            model.set_dtype(mx.float32)
        arrays = _distinct_arrays(model)
        self._total_bytes = sum(array.nbytes for array in arrays)
        self._slices = _slices(arrays, self._slice_bytes)
        self._model = model


def _distinct_arrays(model: nn.Module) -> list[mx.array]:
    """The model's parameters, each once, though tied weights stand in several places."""
    return list({id(array): array for _, array in tree_flatten(model.parameters())}.values())


def _slices(arrays: Sequence[mx.array], slice_bytes: int) -> Iterator[Sequence[mx.array]]:
    """Group arrays into runs of about ``slice_bytes``; an array is never split."""
    pending: list[mx.array] = []
    pending_bytes = 0
    for array in arrays:
        if pending and pending_bytes + array.nbytes > slice_bytes:
            yield pending
            pending, pending_bytes = [], 0
        pending.append(array)
        pending_bytes += array.nbytes
    if pending:
        yield pending


def _require_batchable_caches(model: nn.Module) -> None:
    unmergeable = {
        type(cache).__name__ for cache in make_prompt_cache(model) if not hasattr(cache, "merge")
    }
    if unmergeable:
        raise ValueError(
            f"its {', '.join(sorted(unmergeable))} can't be batched by this version of mlx-lm"
        )
