"""The output items of one response: a model's thoughts, its words and its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from omlx_tui.engines.types import Logprob, Message, ToolCall
from omlx_tui.gateway import frames
from omlx_tui.gateway.problems import JsonObject

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ItemEvent = tuple[str, JsonObject]
"""The type of an event and its fields, without the number that the response gives it."""


@dataclass(slots=True)
class _Writing:
    """The item that is being written: words or thoughts, in one part."""

    kind: Literal["message", "reasoning"]
    item_id: str
    texts: list[str] = field(default_factory=list[str])
    logprobs: list[JsonValue] = field(default_factory=list[JsonValue])

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def part(self) -> JsonObject:
        if self.kind == "message":
            return frames.text_part(self.text, self.logprobs)
        return frames.reasoning_part(self.text)

    def item(self, status: ItemStatus) -> JsonObject:
        content: list[JsonValue] = [] if status == "in_progress" else [self.part()]
        make = frames.message_item if self.kind == "message" else frames.reasoning_item
        return make(self.item_id, status, content)


class OutputItems:
    """Puts an answer's pieces into items, of which at most one is open.

    Words that come after thoughts open an item of their own, and so on: the order of the items is
    the order in which the model wrote.

    Args:
        new_id: makes an id that starts with the given prefix.
    """

    def __init__(self, new_id: Callable[[str], str]) -> None:
        self._new_id = new_id
        self._done: list[JsonObject] = []
        self._open: _Writing | None = None
        self._words: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []

    @property
    def is_empty(self) -> bool:
        return not self._done and self._open is None

    @property
    def has_answer(self) -> bool:
        """Whether there is more than thoughts."""
        is_writing_words = self._open is not None and self._open.kind == "message"
        return is_writing_words or any(item["type"] != "reasoning" for item in self._done)

    @property
    def output(self) -> list[JsonValue]:
        """The items that are whole, in order."""
        return list(self._done)

    def message(self) -> Message:
        """The same as one turn of a conversation, for the next prompt."""
        return Message(
            "assistant",
            "".join(self._words),
            reasoning="".join(self._thoughts),
            tool_calls=tuple(self._calls),
        )

    def add_words(self, text: str, logprobs: Sequence[Logprob] = ()) -> list[ItemEvent]:
        """More of what the model says; an empty text opens an item all the same."""
        events = self._turn_to("message")
        self._words.append(text)
        return events + self._write(text, [frames.logprob(entry) for entry in logprobs])

    def add_thoughts(self, text: str) -> list[ItemEvent]:
        """More of what the model thinks."""
        events = self._turn_to("reasoning")
        self._thoughts.append(text)
        return events + self._write(text, [])

    def add_call(self, call: ToolCall) -> list[ItemEvent]:
        """A whole call. One that the model gave no id gets one."""
        events = self.close("completed")
        known = ToolCall(call.call_id or self._new_id("call"), call.name, call.arguments)
        self._calls.append(known)
        item_id = self._new_id("fc")
        place: JsonObject = {"item_id": item_id, "output_index": self._index}
        unwritten = frames.call_item(item_id, "in_progress", known, arguments="")
        written = frames.call_item(item_id, "completed", known)
        arguments = known.arguments
        events += [
            self._item_event("added", unwritten),
            ("response.function_call_arguments.delta", place | {"delta": arguments}),
            # Some versions of the official client's types want the name here.
            (
                "response.function_call_arguments.done",
                place | {"name": known.name, "arguments": arguments},
            ),
            self._item_event("done", written),
        ]
        self._done.append(written)
        return events

    def close(self, status: Literal["completed", "incomplete"]) -> list[ItemEvent]:
        """End the open item, if there is one."""
        writing = self._open
        if writing is None:
            return []
        ended: JsonObject = {"text": writing.text}
        if writing.kind == "message":
            ended["logprobs"] = writing.logprobs
        item = writing.item(status)
        events = [
            self._text_event(writing, "done", ended),
            self._part_event(writing, "done"),
            self._item_event("done", item),
        ]
        self._done.append(item)
        self._open = None
        return events

    @property
    def _index(self) -> int:
        return len(self._done)

    def _turn_to(self, kind: Literal["message", "reasoning"]) -> list[ItemEvent]:
        if self._open is not None and self._open.kind == kind:
            return []
        events = self.close("completed")
        writing = _Writing(kind, self._new_id("msg" if kind == "message" else "rs"))
        self._open = writing
        return [
            *events,
            self._item_event("added", writing.item("in_progress")),
            self._part_event(writing, "added"),
        ]

    def _write(self, text: str, logprobs: list[JsonValue]) -> list[ItemEvent]:
        writing = self._open
        if writing is None or not text:
            return []
        writing.texts.append(text)
        writing.logprobs += logprobs
        delta: JsonObject = {"delta": text}
        if writing.kind == "message":
            delta["logprobs"] = logprobs
        return [self._text_event(writing, "delta", delta)]

    def _text_event(self, writing: _Writing, what: str, fields: JsonObject) -> ItemEvent:
        name = "output_text" if writing.kind == "message" else "reasoning_text"
        return f"response.{name}.{what}", self._place_in(writing) | fields

    def _part_event(self, writing: _Writing, what: str) -> ItemEvent:
        part: JsonObject = {"part": writing.part()}
        return f"response.content_part.{what}", self._place_in(writing) | part

    def _item_event(self, what: str, item: JsonObject) -> ItemEvent:
        return f"response.output_item.{what}", {"output_index": self._index, "item": item}

    def _place_in(self, writing: _Writing) -> JsonObject:
        return {"item_id": writing.item_id, "output_index": self._index, "content_index": 0}
