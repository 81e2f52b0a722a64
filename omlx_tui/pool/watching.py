"""Notices at run time when the model folders change.

By looking again, not by the operating system's notices (``watchfiles`` and the like): those don't
come from network shares, don't reach through symlinks to what they lead to (every file in a hub
cache is one), end with the folder they watch, and can't begin at a disk that is not mounted yet.
Polling would be needed for all of these anyway. A look costs a listing, because what was read is
remembered by fingerprint (``ExaminationCache``), and runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from omlx_tui.pool.discovery import Changes, Discovery, diff

# A watch never uses more of a core than this, however many models there are.
_MOST_SHARE_OF_TIME = 0.05

# Changes that go on are reported after so many looks, so that a long copy shows up.
_MOST_LOOKS_TO_SETTLE = 5


async def watch(
    look: Callable[[], Discovery],
    on_change: Callable[[Discovery, Changes], None],
    *,
    known: Callable[[], Discovery],
    interval_seconds: float = 2.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Look again and again, and report what differs from what the caller has, until cancelled.

    A difference is reported when two looks in a row agree, so a model that is being copied or
    a root that is away for a moment is one report, or none. A root that vanishes takes its
    models with it; when it returns, they do.

    Args:
        look: runs in a thread; usually ``find_all`` with an ``ExaminationCache``. When it raises
            an ``OSError`` nothing is concluded from that look; other errors end the watch.
        on_change: called on the loop, with what was found and what differs from before; the
            changes are empty if only warnings differ. What it raises ends the watch.
        known: what the caller has at the moment; it may look by itself in between.
        interval_seconds: between two looks; longer when a look takes long.

    Cancelling ends it at once. A look under way goes on in its thread and is not heard.
    """
    latest = known()
    looks_to_settle = 0
    pause_seconds = interval_seconds
    while True:
        await sleep(pause_seconds)
        started = clock()
        try:
            seen = await asyncio.to_thread(look)
        except OSError:
            continue
        finally:
            look_seconds = clock() - started
            pause_seconds = max(interval_seconds, look_seconds / _MOST_SHARE_OF_TIME)
        has_settled = seen == latest
        latest = seen
        had = known()
        if seen == had:
            looks_to_settle = 0
            continue
        looks_to_settle += 1
        if has_settled or looks_to_settle >= _MOST_LOOKS_TO_SETTLE:
            on_change(seen, diff(had, seen))
            looks_to_settle = 0
