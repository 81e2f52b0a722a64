"""A synthetic load through the real socket, so that evictions happen before one's eyes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from omlx_tui.client import PromptError, stream_prompt

logger = logging.getLogger(__name__)

# What the sample models have learnt to answer.
PROMPTS = (
    "Tell me a story about a fox and a lantern.",
    "What is the capital of France?",
    "What is the opposite of hot?",
    "Hello!",
)
_CLIENTS = 3
_SKEW = 0.35  # each model is asked this much less often than the one more in favour
_PICKS_IN_FAVOUR = 6
_MAX_OUTPUT_TOKENS = 96
_PAUSE_S = (0.2, 1.2)
_PAUSE_AFTER_ERROR_S = 1.0


class DriftingChoice:
    """Picks models so that one is in favour, few are asked often, and favour wanders.

    With favour that stood still the same models would stay in memory for ever; with even odds there
    would be nothing to keep.
    """

    def __init__(self, models: Sequence[str], seed: int) -> None:
        if not models:
            raise ValueError("a demo needs at least one model")
        self._models = tuple(models)
        self._rng = random.Random(seed)  # noqa: S311 - a show, not a secret
        self._picks = 0

    @property
    def favourite(self) -> str:
        return self._models[self._picks // _PICKS_IN_FAVOUR % len(self._models)]

    def pick(self) -> str:
        start = self._models.index(self.favourite)
        ranked = self._models[start:] + self._models[:start]
        weights = [_SKEW**rank for rank in range(len(ranked))]
        self._picks += 1
        return self._rng.choices(ranked, weights)[0]


class DemoLoad:
    """A few clients that prompt and pause, from ``start`` to ``stop``.

    Errors are part of the show: a refusal for lack of memory is seen in the console, and the client
    goes on with another prompt.

    Args:
        url: the endpoint.
        models: which to ask; at least one.
        seed: makes the sequence of prompts repeatable.
        pause: waits that many seconds; tests put something quicker here.
    """

    def __init__(
        self,
        url: str,
        models: Sequence[str],
        *,
        seed: int = 0,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._url = url
        self._choice = DriftingChoice(models, seed)
        self._rng = random.Random(seed)  # noqa: S311
        self._pause = pause
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @property
    def is_running(self) -> bool:
        return bool(self._tasks)

    async def start(self) -> None:
        """Begin to prompt; does nothing if it runs already."""
        if self.is_running:
            return
        self._tasks = tuple(
            asyncio.create_task(self._prompt_forever(), name=f"demo client {number}")
            for number in range(_CLIENTS)
        )

    async def stop(self) -> None:
        """End at once, in the middle of answers too; when it returns no task is left."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _prompt_forever(self) -> None:
        while True:
            await self._pause(self._rng.uniform(*_PAUSE_S))
            try:
                await self._prompt_once()
            except PromptError as error:
                logger.info("demo: %s", error)
                await self._pause(_PAUSE_AFTER_ERROR_S)

    async def _prompt_once(self) -> None:
        answer = stream_prompt(
            self._url,
            self._rng.choice(PROMPTS),
            model=self._choice.pick(),
            max_output_tokens=_MAX_OUTPUT_TOKENS,
            client_name="omlx-demo",
        )
        async with contextlib.aclosing(answer) as events:
            async for _ in events:
                pass
