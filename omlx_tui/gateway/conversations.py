"""What was said before: the conversations that a connection can go on with."""

from __future__ import annotations

from omlx_tui.engines.types import Message
from omlx_tui.gateway.problems import invalid

Messages = tuple[Message, ...]


class Conversations:
    """The conversation up to the latest answered response of each lane.

    One that failed or was cancelled leaves the one before it in its place, so that a client can try
    again from there. What is kept has fitted into a model's context, and there are no more of them
    than lanes.
    """

    def __init__(self) -> None:
        self._latest: dict[str | None, tuple[str, Messages]] = {}

    def up_to(self, response_id: str | None) -> Messages:
        """What was said up to a response and in it; nothing before the first.

        Instructions are not in it: they hold for the request that they came with.

        Raises:
            ProtocolError: 400 ``previous_response_not_found``.
        """
        if response_id is None:
            return ()
        for kept_id, messages in self._latest.values():
            if kept_id == response_id:
                return messages
        raise invalid(
            "previous_response_not_found",
            f"The response {response_id[:64]!r} can't be continued: the latest answered one of "
            "each lane of this connection can. Send the whole conversation as `input`.",
            param="previous_response_id",
        )

    def keep(self, stream_id: str | None, response_id: str, messages: Messages) -> None:
        """The lane's latest response is this one; ``messages`` end with what it said."""
        self._latest[stream_id] = (response_id, messages)
