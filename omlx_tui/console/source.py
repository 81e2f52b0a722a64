"""Where the console gets its picture from and where its commands go.

The console knows nothing of the host beyond this: it pulls the latest frozen frame on its own
clock, so a terminal that stalls can never make the host wait or queue anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from omlx_tui.pool.events import PoolEvent
from omlx_tui.pool.snapshot import LoadPlan, PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One picture of the host.

    Attributes:
        events: the kept events, oldest first.
        endpoint: where clients send prompts, ``ws://127.0.0.1:8765/v1/responses``.
        uptime_s: since the host started.
        is_demo_running: whether the synthetic load is on.
    """

    snapshot: PoolSnapshot
    events: tuple[PoolEvent, ...]
    host_name: str
    endpoint: str
    uptime_s: float
    is_demo_running: bool = False


class Source(Protocol):
    """The host in this process, a remote one, or a recording.

    Commands raise an exception whose message is one line for the operator.
    """

    def frame(self) -> Frame | None:
        """The latest picture; the same object until there is a newer one, None before the first."""
        ...

    async def load(self, model_id: str) -> None: ...

    async def unload(self, model_id: str, *, force: bool) -> int:
        """Returns the bytes freed."""
        ...

    async def set_pinned(self, model_id: str, *, is_pinned: bool) -> None: ...

    async def plan_load(self, model_id: str) -> LoadPlan: ...

    async def rescan(self) -> None:
        """Look into the model folders again."""
        ...

    async def set_demo(self, *, is_running: bool) -> None: ...
