"""``input`` and ``instructions`` as a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from omlx_tui.engines.types import Message, Role, ToolCall
from omlx_tui.gateway.problems import JsonObject, invalid
from omlx_tui.gateway.unsupported import unsupported

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
_THOUGHT_PARTS: Final = ("reasoning_text", "summary_text", "text")


def read_messages(value: JsonValue, *, may_be_empty: bool = False) -> tuple[Message, ...]:
    """Turn a request's ``input`` into messages, one for each item.

    Args:
        may_be_empty: whether a missing or empty input is none at all, and no mistake.

    Raises:
        ProtocolError: the input is malformed or holds what can't be read here.
    """
    if may_be_empty and not value and not isinstance(value, bool | int | float):
        return ()
    if value is None:
        raise invalid("missing_required_parameter", "`input` is missing.", param="input")
    if isinstance(value, str):
        if not value:
            raise invalid("invalid_value", "`input` is empty.", param="input")
        return (Message("user", value),)
    if not isinstance(value, list):
        raise invalid(
            "invalid_type", "`input` must be a string or a list of messages.", param="input"
        )
    if not value:
        raise invalid("invalid_value", "`input` has no messages.", param="input")
    return tuple(_read_item(item, f"input[{index}]") for index, item in enumerate(value))


def as_conversation(messages: Iterable[Message], instructions: str | None) -> tuple[Message, ...]:
    """The turns that a chat template takes, the instructions first.

    An assistant's thoughts, words and calls are one turn, though each is an item. A run of system
    messages at the start becomes one: many chat templates take only the first. The answer to a call
    learns the name of its function.

    Raises:
        ProtocolError: an answer to a call that was never made.
    """
    turns: list[Message] = [Message("system", instructions)] if instructions else []
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.call_id: call.name for call in message.tool_calls}
        if message.role == "tool":
            turns.append(replace(message, name=_name_of(message.call_id, names)))
        elif turns and _is_one_turn(turns[-1], message):
            turns[-1] = _joined(turns[-1], message)
        else:
            turns.append(message)
    leading = 0
    while leading < len(turns) and turns[leading].role == "system":
        leading += 1
    if leading > 1:
        turns[:leading] = [Message("system", "\n\n".join(t.content for t in turns[:leading]))]
    return tuple(turns)


def _name_of(call_id: str, names: dict[str, str]) -> str:
    if call_id not in names:
        raise invalid(
            "invalid_value",
            f"`input` answers the call {call_id[:64]!r}, and no item before it makes that call.",
            param="input",
        )
    return names[call_id]


def _is_one_turn(turn: Message, more: Message) -> bool:
    if turn.role != "assistant" or more.role != "assistant":
        return False
    is_only_calls = not (more.content or more.reasoning)
    is_only_thought = not (turn.content or turn.tool_calls)
    return is_only_calls or is_only_thought


def _joined(turn: Message, more: Message) -> Message:
    return Message(
        "assistant",
        turn.content + more.content,
        reasoning="\n\n".join(filter(None, (turn.reasoning, more.reasoning))),
        tool_calls=turn.tool_calls + more.tool_calls,
    )


def _read_item(item: JsonValue, path: str) -> Message:
    if not isinstance(item, dict):
        raise invalid("invalid_type", f"`{path}` must be an item object.", param=path)
    match item.get("type") or "message":
        case "message":
            return _read_message(item, path)
        case "reasoning":
            return Message("assistant", "", reasoning=_read_thoughts(item, path))
        case "function_call":
            return Message("assistant", "", tool_calls=(_read_call(item, path),))
        case "function_call_output":
            call_id = _read_text(item, "call_id", path)
            return Message("tool", _read_content(item, "output", path), call_id=call_id)
        case _:
            raise unsupported(
                f"{path}.type",
                "Items of type `message`, `reasoning`, `function_call` and "
                "`function_call_output` are read.",
            )


def _read_message(item: JsonObject, path: str) -> Message:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(f"`{name}`" for name in _ROLES)
        raise invalid(
            "invalid_value", f"`{path}.role` must be one of {known}.", param=f"{path}.role"
        )
    return Message(_ROLES[role], _read_content(item, "content", path))


def _read_thoughts(item: JsonObject, path: str) -> str:
    """What a model thought, else its summary; nothing of one that came encrypted."""
    for key in ("content", "summary"):
        if parts := item.get(key):
            place = f"{path}.{key}"
            if not isinstance(parts, list):
                raise invalid("invalid_type", f"`{place}` must be a list of parts.", param=place)
            return "\n\n".join(_read_parts(parts, _THOUGHT_PARTS, place))
    return ""


def _read_call(item: JsonObject, path: str) -> ToolCall:
    call_id, name, arguments = (
        _read_text(item, key, path) for key in ("call_id", "name", "arguments")
    )
    return ToolCall(call_id, name, arguments)


def _read_text(item: JsonObject, key: str, path: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise invalid("invalid_type", f"`{path}.{key}` must be a string.", param=f"{path}.{key}")
    return value


def _read_content(item: JsonObject, key: str, path: str) -> str:
    content, place = item.get(key), f"{path}.{key}"
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(
            "invalid_type", f"`{place}` must be a string or a list of text parts.", param=place
        )
    # Nothing is put between the parts: they are what the client wrote, and all it wrote.
    return "".join(_read_parts(content, _TEXT_PARTS, place))


def _read_parts(parts: list[JsonValue], kinds: Sequence[str], path: str) -> list[str]:
    return [_read_part(part, kinds, f"{path}[{index}]") for index, part in enumerate(parts)]


def _read_part(part: JsonValue, kinds: Sequence[str], path: str) -> str:
    if not isinstance(part, dict):
        raise invalid("invalid_type", f"`{path}` must be a text part object.", param=path)
    if part.get("type") not in kinds:
        known = " and ".join(f"`{kind}`" for kind in kinds[:2])
        raise unsupported(f"{path}.type", f"Only parts of type {known} are read.")
    return _read_text(part, "text", path)
