"""What a sequence's KV cache costs in bytes. Arithmetic only: no MLX, no files."""

from __future__ import annotations

from dataclasses import dataclass

# mlx-lm's caches grow by this many tokens at a time.
STEP_TOKENS = 256

# A KV budget is never less than what one sequence of this length may take: a smaller one would
# leave a model that is resident and can't answer. Only models of a few MB come near it.
FLOOR_TOKENS = 512


@dataclass(frozen=True, slots=True)
class KVLayers:
    """Layers that keep alike: how much per token, and of how many of the last tokens.

    ``bytes_per_token`` is the sum over these layers; ``window_tokens`` of None means all tokens.
    """

    bytes_per_token: int
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class KVShape:
    """How one model's cache grows with the length of a sequence.

    ``constant_bytes`` is the state of layers that keep no tokens (state-space, linear attention).
    """

    layers: tuple[KVLayers, ...]
    constant_bytes: int = 0

    @property
    def bytes_per_token(self) -> int:
        """What the next token costs, as long as no window is full."""
        return sum(group.bytes_per_token for group in self.layers)

    def bytes_for(self, tokens: int) -> int:
        """What a sequence of that many tokens holds, decoding by itself from a fresh cache."""
        return self._bytes(_rounded_up(tokens), window_tokens=tokens + STEP_TOKENS - 1)

    def most_bytes_for(self, prompt_tokens: int, tokens: int, *, prefill_step: int) -> int:
        """The most that a sequence holds at any time until it has ``tokens`` tokens in all.

        Beside others, or continued from a cached prefix, a cache does not begin its steps at a
        multiple of them: it may be nearly one step longer. And while a prompt is read, a sliding
        window holds the slice being read as well.
        """
        decoding = self._bytes(
            _rounded_up(tokens + STEP_TOKENS - 1), window_tokens=tokens + STEP_TOKENS - 1
        )
        reading = self._bytes(
            _rounded_up(prompt_tokens + STEP_TOKENS - 1),
            window_tokens=prompt_tokens,
            beyond_window=prefill_step - 1,
        )
        return max(decoding, reading)

    def _bytes(self, tokens: int, *, window_tokens: int, beyond_window: int = 0) -> int:
        total = self.constant_bytes
        for group in self.layers:
            held = tokens
            if group.window_tokens is not None:
                held = min(window_tokens, group.window_tokens + beyond_window)
            total += group.bytes_per_token * held
        return total


def _rounded_up(tokens: int) -> int:
    return -(-tokens // STEP_TOKENS) * STEP_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCosts:
    """What requests to one model may take, under the way they are run.

    Attributes:
        prefill_step: prompt tokens read per turn.
        context_tokens: the most tokens a sequence can have.
    """

    shape: KVShape
    prefill_step: int
    context_tokens: int

    @property
    def floor_bytes(self) -> int:
        """The least budget under which the model can answer at all."""
        tokens = min(self.context_tokens, FLOOR_TOKENS)
        return self.of_one(tokens - 1, tokens)

    def of_one(self, prompt_tokens: int, tokens: int) -> int:
        """The most bytes of one request whose prompt and answer are ``tokens`` long together."""
        return self.shape.most_bytes_for(prompt_tokens, tokens, prefill_step=self.prefill_step)

    def most_tokens(self, prompt_tokens: int, budget_bytes: int) -> int:
        """The longest sequence, prompt and answer, that such a budget allows; 0 if none."""
        fitting, too_long = 0, self.context_tokens + 1
        while too_long - fitting > 1:
            middle = (fitting + too_long) // 2
            if self.of_one(min(prompt_tokens, middle), middle) <= budget_bytes:
                fitting = middle
            else:
                too_long = middle
        return fitting if fitting > prompt_tokens else 0
