"""Make the picture in README.md: a real host on the sample models, drawn while it serves.

Run by ``make screenshot``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path

from omlx_tui.client import Delta, stream_prompt
from omlx_tui.console.screenshot import save_screenshot
from omlx_tui.host import EngineHost
from omlx_tui.local import HostThread
from omlx_tui.logs import configure_logging
from omlx_tui.settings import HostSettings
from omlx_tui.sizes import Budget

STORY = "Tell me a story about a fox and a lantern."
PINNED = "qwen3-1m-8bit"
ANSWERED = (PINNED, "llama-1m-fp32", "mixtral-4e-4bit")
ANSWERING = "gemma3-2.6m-4bit"


async def prompt(url: str, model: str, text: str = "What is the capital of France?") -> None:
    async with aclosing(stream_prompt(url, text, model=model, max_output_tokens=48)) as events:
        async for _ in events:
            pass


async def draw(path: Path) -> None:
    configure_logging(Path(os.devnull))
    settings = HostSettings(
        models=(Path("sample_models"),), max_model_memory=Budget.parse("9MB"), drain_s=0
    )
    host = EngineHost(settings)
    host.host_name = "studio"
    source = HostThread(host)
    source.start()
    url = host.gateway.url
    try:
        await source.set_pinned(PINNED, is_pinned=True)
        for model in ANSWERED:
            await prompt(url, model)
        async with aclosing(stream_prompt(url, STORY, model=ANSWERING)) as events:
            deltas = 0
            async for event in events:
                deltas += isinstance(event, Delta)
                if deltas == 12:
                    break
            await save_screenshot(source, path)
    finally:
        source.close()


if __name__ == "__main__":
    asyncio.run(draw(Path(sys.argv[1])))
