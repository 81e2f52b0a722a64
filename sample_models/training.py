"""Training on a CPU: Muon for the hidden matrices, AdamW for everything else.

Muon replaces the gradient of a matrix by the nearest matrix with orthogonal columns. On models
this small it needs far fewer steps than AdamW alone, which is what makes minutes enough.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

BATCH = 2
"""Windows in a step."""
MUON_RATE, EMBEDDING_RATE, ADAM_RATE = 0.02, 0.2, 6e-3
"""Peaks. A separate table of embeddings wants a far larger step than the rest: started small, a
word would drown in what the layers add to it. A tied one is the output as well, and can't have it.
"""
WARMUP = 0.02
"""Share of the time in which the learning rate rises; it falls to nothing in the rest."""


@dataclass(frozen=True)
class Outcome:
    """What a training run came to."""

    steps: int
    tokens: int
    seconds: float
    validation_loss: float

    def __str__(self) -> str:
        """One line for the build's log."""
        return (
            f"{self.steps} steps, {self.tokens / 1e6:.2f}M tokens, {self.seconds:.0f} s, "
            f"validation loss {self.validation_loss:.3f}"
        )


def orthogonalize(matrices: torch.Tensor, iterations: int = 5) -> torch.Tensor:
    """Newton-Schulz iteration on a stack of matrices: singular values are driven towards one.

    The polynomial's coefficients are those of Muon's author; they trade exactness, which does not
    matter here, for speed.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrices.size(-2) <= matrices.size(-1)
    x = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised updates; takes matrices and stacks of matrices (experts)."""

    def __init__(
        self, parameters: list[torch.nn.Parameter], lr: float, momentum: float = 0.95
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every parameter, those of one shape together: few large products are faster."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append(parameter)
            for shape, parameters in shapes.items():
                updates = [self._momentum(p, group["momentum"]) for p in parameters]
                scale = max(1.0, shape[-2] / shape[-1]) ** 0.5
                directions = orthogonalize(torch.stack(updates)).unbind()
                for parameter, direction in zip(parameters, directions, strict=True):
                    parameter.add_(direction, alpha=-group["lr"] * scale)

    def _momentum(self, parameter: torch.nn.Parameter, momentum: float) -> torch.Tensor:
        """The Nesterov look-ahead of a parameter's running gradient."""
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        running = state.setdefault("running", torch.zeros_like(gradient))
        running.lerp_(gradient, 1 - momentum)
        return gradient.lerp(running, momentum)


def make_optimizers(model: PreTrainedModel) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices; AdamW for embeddings, output, norms and routers."""
    embedding = model.get_input_embeddings().weight
    tied = model.config.tie_word_embeddings
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        hidden = parameter.ndim >= 2 and ".layers." in name and not name.endswith("gate.weight")
        if parameter is not embedding:
            (matrices if hidden else others).append(parameter)
    tables = {"params": [embedding], "lr": ADAM_RATE if tied else EMBEDDING_RATE}
    return [
        Muon(matrices, MUON_RATE),
        torch.optim.AdamW(
            [tables, {"params": others}], ADAM_RATE, betas=(0.9, 0.98), weight_decay=0.0
        ),
    ]


def rate_at(progress: float) -> float:
    """The learning rate as a share of its peak."""
    return min(progress / WARMUP, (1 - progress) / (1 - WARMUP), 1.0)


def mean_loss(model: PreTrainedModel, tokens: np.ndarray, labels: np.ndarray) -> float:
    """The loss per learned token over windows that were not trained on."""
    model.eval()
    losses = []
    with torch.no_grad():
        for start in range(0, len(tokens), BATCH):
            batch = slice(start, start + BATCH)
            losses.append(loss_of(model, tokens[batch], labels[batch]).item())
    model.train()
    return sum(losses) / len(losses)


def loss_of(model: PreTrainedModel, tokens: np.ndarray, labels: np.ndarray) -> torch.Tensor:
    """The model's own loss (a mixture of experts adds what keeps its router balanced)."""
    output = model(
        input_ids=torch.from_numpy(tokens.astype(np.int64)),
        labels=torch.from_numpy(labels.astype(np.int64)),
        use_cache=False,
    )
    return output.loss


def train(
    model: PreTrainedModel, tokens: np.ndarray, labels: np.ndarray, minutes: float, seed: int
) -> Outcome:
    """Train for a time, not for a number of steps: the schedule follows the processor's clock.

    So the cost of a build is known beforehand on any machine, and what else the machine is doing
    makes it later but not worse. The last windows are kept for validation.
    """
    held = 8 * BATCH
    rng = np.random.default_rng(seed)
    optimizers = make_optimizers(model)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    peaks = [group["lr"] for group in groups]
    order: list[int] = []
    model.train()
    started, steps = time.process_time(), 0
    while (progress := (time.process_time() - started) / (60 * minutes)) < 1:
        if len(order) < BATCH:
            order = rng.permutation(len(tokens) - held).tolist()
        batch, order = order[:BATCH], order[BATCH:]
        loss = loss_of(model, tokens[batch], labels[batch])
        loss.backward()
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = peak * rate_at(max(progress, 1e-3))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        steps += 1
        if steps % 100 == 0:
            kind = model.config.model_type
            print(f"  {kind}: step {steps}, {progress:.0%}, {loss.item():.3f}", flush=True)
    seconds = time.process_time() - started
    validation = mean_loss(model, tokens[-held:], labels[-held:])
    return Outcome(steps, steps * BATCH * tokens.shape[1], seconds, validation)
