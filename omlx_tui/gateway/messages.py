"""``input`` and ``instructions`` as a conversation."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from omlx_tui.engines.types import Message, Role
from omlx_tui.gateway.problems import JsonObject, invalid
from omlx_tui.gateway.unsupported import unsupported

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TEXT_PARTS: Final = ("input_text", "output_text", "text")


def read_messages(value: JsonValue, instructions: str | None) -> tuple[Message, ...]:
    """Turn a request's ``input`` into messages, the instructions first.

    A run of system messages at the start becomes one: many chat templates take only the first.

    Raises:
        ProtocolError: the input is missing, empty, malformed or holds more than text.
    """
    messages = _read_input(value)
    if instructions:
        messages.insert(0, Message("system", instructions))
    leading = 0
    while leading < len(messages) and messages[leading].role == "system":
        leading += 1
    if leading > 1:
        joined = "\n\n".join(message.content for message in messages[:leading])
        messages[:leading] = [Message("system", joined)]
    return tuple(messages)


def _read_input(value: JsonValue) -> list[Message]:
    if value is None:
        raise invalid("missing_required_parameter", "`input` is missing.", param="input")
    if isinstance(value, str):
        if not value:
            raise invalid("invalid_value", "`input` is empty.", param="input")
        return [Message("user", value)]
    if not isinstance(value, list):
        raise invalid(
            "invalid_type", "`input` must be a string or a list of messages.", param="input"
        )
    if not value:
        raise invalid("invalid_value", "`input` has no messages.", param="input")
    return [_read_item(item, f"input[{index}]") for index, item in enumerate(value)]


def _read_item(item: JsonValue, path: str) -> Message:
    if not isinstance(item, dict):
        raise invalid("invalid_type", f"`{path}` must be a message object.", param=path)
    kind = item.get("type") or "message"
    if kind != "message":
        raise unsupported(f"{path}.type", "Only items of type `message` are read.")
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(f"`{name}`" for name in _ROLES)
        raise invalid(
            "invalid_value", f"`{path}.role` must be one of {known}.", param=f"{path}.role"
        )
    return Message(_ROLES[role], _read_content(item, f"{path}.content"))


def _read_content(item: JsonObject, path: str) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(
            "invalid_type", f"`{path}` must be a string or a list of text parts.", param=path
        )
    # Nothing is put between the parts: they are what the client wrote, and all it wrote.
    return "".join(_read_part(part, f"{path}[{index}]") for index, part in enumerate(content))


def _read_part(part: JsonValue, path: str) -> str:
    if not isinstance(part, dict):
        raise invalid("invalid_type", f"`{path}` must be a text part object.", param=path)
    if part.get("type") not in _TEXT_PARTS:
        raise unsupported(
            f"{path}.type", "Only parts of type `input_text` and `output_text` are read."
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise invalid("invalid_type", f"`{path}.text` must be a string.", param=f"{path}.text")
    return text
