"""What of a client's tools a model is told."""

from __future__ import annotations

from typing import Any

import pytest

from omlx_tui.engines.types import Tool
from omlx_tui.gateway.problems import ProtocolError
from omlx_tui.gateway.tools import offered_tools, read_tools

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = (Tool("a"), Tool("b"))


def test_a_function_is_read_whole() -> None:
    """Strictness and other hints are no reason to refuse it."""
    tool: Any = {
        "type": "function",
        "name": "weather",
        "description": "Of a city.",
        "parameters": SCHEMA,
        "strict": True,
    }
    assert read_tools([tool]) == (Tool("weather", "Of a city.", SCHEMA),)


def test_a_function_without_parameters_has_an_empty_schema() -> None:
    """Chat templates look for its properties without asking whether there are any."""
    (tool,) = read_tools([{"type": "function", "name": "now", "parameters": None}])
    assert tool.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, "ab"),
        ("auto", "ab"),
        ("none", ""),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "b"}, {"name": "c"}]}, "b"),
    ],
)
def test_the_choice_leaves_some(choice: Any, names: str) -> None:
    """A model is told of those only that it may call."""
    assert "".join(tool.name for tool in offered_tools(TOOLS, choice)) == names


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "a"},
        {"type": "allowed_tools", "mode": "required", "tools": []},
        {"type": "allowed_tools", "mode": "auto", "tools": "a"},
        5,
    ],
)
def test_no_model_can_be_made_to_call(choice: Any) -> None:
    """A client that counts on a call is told that it can't."""
    with pytest.raises(ProtocolError) as caught:
        offered_tools(TOOLS, choice)
    assert caught.value.problem.param == "tool_choice"
