"""``tools`` and ``tool_choice``: what a model is told that it may call."""

from __future__ import annotations

import re
from typing import Final

from pydantic import JsonValue

from omlx_tui.engines.types import Tool
from omlx_tui.gateway.problems import JsonObject, invalid
from omlx_tui.gateway.unsupported import unsupported

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MAX_TOOLS: Final = 512


def read_tools(value: JsonValue) -> tuple[Tool, ...]:
    """The functions among a request's ``tools``; there is nothing else that could be called here.

    Raises:
        ProtocolError: a tool is malformed, or none that the client itself would carry out.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _MAX_TOOLS:
        raise invalid(
            "invalid_type", f"`tools` must be a list of at most {_MAX_TOOLS}.", param="tools"
        )
    tools = tuple(_read_tool(tool, f"tools[{index}]") for index, tool in enumerate(value))
    if len({tool.name for tool in tools}) < len(tools):
        raise invalid("invalid_value", "`tools` has two of one name.", param="tools")
    return tools


def offered_tools(tools: tuple[Tool, ...], choice: JsonValue) -> tuple[Tool, ...]:
    """Those of ``tools`` that a ``tool_choice`` leaves.

    Raises:
        ProtocolError: it asks for a call in any case, which no model here can be held to.
    """
    match choice:
        case None | "auto":
            return tools
        case "none":
            return ()
        case {"type": "allowed_tools", "mode": "auto", "tools": [*allowed]}:
            names = [entry.get("name") for entry in allowed if isinstance(entry, dict)]
            return tuple(tool for tool in tools if tool.name in names)
        case _:
            raise unsupported(
                "tool_choice", "Models here choose for themselves: use `auto` or `none`."
            )


def _read_tool(tool: JsonValue, path: str) -> Tool:
    if not isinstance(tool, dict):
        raise invalid("invalid_type", f"`{path}` must be a tool object.", param=path)
    if tool.get("type") != "function":
        raise unsupported(f"{path}.type", "Only tools of type `function` can be offered.")
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            "invalid_value",
            f"`{path}.name` must be 1 to 128 of the characters A-Z a-z 0-9 _ . -",
            param=f"{path}.name",
        )
    return Tool(name, _read_description(tool, path), _read_parameters(tool, path))


def _read_description(tool: JsonObject, path: str) -> str:
    description = tool.get("description")
    if description is not None and not isinstance(description, str):
        raise invalid(
            "invalid_type", f"`{path}.description` must be a string.", param=f"{path}.description"
        )
    return description or ""


def _read_parameters(tool: JsonObject, path: str) -> JsonObject:
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(
            "invalid_type",
            f"`{path}.parameters` must be a JSON schema object.",
            param=f"{path}.parameters",
        )
    # Templates look into it without asking whether it is there.
    return parameters or {"type": "object", "properties": {}}
