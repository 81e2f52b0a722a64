"""Which requests of one model may hold KV cache now, and which wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omlx_tui.engines.errors import KVBudgetError
from omlx_tui.engines.kv import KVCosts
from omlx_tui.engines.types import PreparedRequest

# What an answer whose length was left open is counted with while it waits and runs.
EXPECTED_ANSWER_TOKENS = 512


@dataclass(frozen=True, slots=True)
class _Demand:
    prompt_tokens: int
    tokens: int


class KVAdmission:
    """Counts what every admitted request may need at its end, and admits in order of arrival.

    An answer whose length was left open counts with what is usual.

    A batch is a rectangle: each of its rows is as long as its longest, so that one long request
    makes its neighbours expensive. The oldest waiter is never overtaken, and is admitted in any
    case when nothing else runs: it was accepted under the budget of its time.

    Nothing here waits or sends; ``admit`` says who is next.
    """

    def __init__(self, model_id: str, costs: KVCosts) -> None:
        self._model_id = model_id
        self._costs = costs
        self._budget_bytes: int | None = None
        self._running: dict[str, _Demand] = {}
        self._waiting: dict[str, _Demand] = {}

    @property
    def budget_bytes(self) -> int | None:
        return self._budget_bytes

    @budget_bytes.setter
    def budget_bytes(self, budget_bytes: int | None) -> None:
        """None is no limit; less than ``KVCosts.floor_bytes`` is raised to it."""
        if budget_bytes is not None:
            budget_bytes = max(budget_bytes, self._costs.floor_bytes)
        self._budget_bytes = budget_bytes

    def settle(self, prepared: PreparedRequest) -> PreparedRequest:
        """Hold a request against the whole budget.

        An answer without a limit of its own is shortened to what fits.

        Raises:
            KVBudgetError: it could never run, or leaves no room for one token.
        """
        if self._budget_bytes is None:
            return prepared
        prompt_tokens = len(prepared.prompt)
        tokens = prompt_tokens + prepared.max_tokens
        if self._costs.of_one(prompt_tokens, tokens) <= self._budget_bytes:
            return prepared
        most_tokens = self._costs.most_tokens(prompt_tokens, self._budget_bytes)
        if prepared.request.max_tokens is not None or not most_tokens:
            least_tokens = tokens if prepared.request.max_tokens else prompt_tokens + 1
            raise KVBudgetError(
                self._model_id,
                prompt_tokens=prompt_tokens,
                answer_tokens=least_tokens - prompt_tokens,
                needed_bytes=self._costs.of_one(prompt_tokens, least_tokens),
                budget_bytes=self._budget_bytes,
            )
        return PreparedRequest(
            request=prepared.request,
            prompt=prepared.prompt,
            max_tokens=most_tokens - prompt_tokens,
        )

    def enqueue(self, prepared: PreparedRequest) -> None:
        prompt_tokens = len(prepared.prompt)
        answer_tokens = prepared.max_tokens
        if prepared.request.max_tokens is None:
            # Few answers use all of the room there is. If they do, the pool counts what they hold.
            answer_tokens = min(answer_tokens, EXPECTED_ANSWER_TOKENS)
        self._waiting[prepared.request.request_id] = _Demand(
            prompt_tokens, prompt_tokens + answer_tokens
        )

    def admit(self) -> tuple[str, ...]:
        """Admit as many of the oldest waiters as fit now; returns their request ids."""
        admitted: list[str] = []
        while self._waiting and self._fits(next(iter(self._waiting.values()))):
            request_id = next(iter(self._waiting))
            self._running[request_id] = self._waiting.pop(request_id)
            admitted.append(request_id)
        return tuple(admitted)

    def withdraw(self, request_id: str) -> bool:
        """Forget a request, waiting or running; says whether it was running."""
        self._waiting.pop(request_id, None)
        return self._running.pop(request_id, None) is not None

    def clear(self) -> None:
        self._running.clear()
        self._waiting.clear()

    def _fits(self, demand: _Demand) -> bool:
        if self._budget_bytes is None or not self._running:
            return True
        return self._batch_bytes((*self._running.values(), demand)) <= self._budget_bytes

    def _batch_bytes(self, rows: Iterable[_Demand]) -> int:
        rows = tuple(rows)
        longest_prompt = max(row.prompt_tokens for row in rows)
        longest = max(row.tokens for row in rows)
        return len(rows) * self._costs.of_one(longest_prompt, longest)
