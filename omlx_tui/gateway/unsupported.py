"""Parameters that are refused by name, because ignoring them would change what is answered.

Whatever is not listed here and not read by ``inputs.py`` is ignored: hints, hosted-service
features, and fields of protocols to come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from omlx_tui.gateway.problems import JsonObject, ProtocolError, invalid


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One parameter, when its value asks for something, and what to do instead."""

    param: str
    asks: Callable[[JsonValue], bool]
    instead: str


def _is_given(_: JsonValue) -> bool:
    return True


def _is_true(value: JsonValue) -> bool:
    return bool(value)


def _wants_a_format(value: JsonValue) -> bool:
    if not isinstance(value, dict):
        return True
    form = value.get("format")
    return form is not None and not (isinstance(form, dict) and form.get("type") == "text")


UNSUPPORTED = (
    Unsupported("conversation", _is_given, "Send `previous_response_id`, or all of it as `input`."),
    Unsupported("prompt", _is_given, "Send the prompt's text as `input`."),
    Unsupported("background", _is_true, "Leave it out; answers are streamed."),
    Unsupported("text", _wants_a_format, "Leave it out, or use the format `text`."),
    Unsupported("moderation", _is_given, "Leave it out; nothing here moderates."),
    Unsupported("logit_bias", _is_true, "Leave it out."),
)


def refuse_unsupported(body: JsonObject) -> None:
    """Raise for the first parameter of ``body`` that would have to be ignored.

    Raises:
        ProtocolError: 400 ``unsupported_parameter``, with the parameter's name.
    """
    for entry in UNSUPPORTED:
        if entry.param in body and entry.asks(body[entry.param]):
            raise unsupported(entry.param, entry.instead)


def unsupported(param: str, instead: str) -> ProtocolError:
    """The refusal of one parameter."""
    return invalid(
        "unsupported_parameter",
        f"`{param}` is not supported by this version of omlx-tui as it is used here. {instead}",
        param=param,
    )
