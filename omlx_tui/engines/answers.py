"""From token ids to the parts of an answer: its text, the thoughts before it, and tool calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast

from omlx_tui.engines.commands import TokenLogprobs
from omlx_tui.engines.logprobs import TokenSpeller
from omlx_tui.engines.text import StopFilter
from omlx_tui.engines.types import Logprob, Tool, ToolCall

PieceKind = Literal["text", "reasoning", "call"]


class Detokenizer(Protocol):
    """mlx-lm's streaming detokenizers, as far as they are used here."""

    @property
    def last_segment(self) -> str: ...

    def add_token(self, token: int) -> None: ...

    def finalize(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Something new of an answer; ``call`` is there in pieces of that kind only."""

    kind: PieceKind
    text: str = ""
    logprobs: tuple[Logprob, ...] = ()
    call: ToolCall | None = None


class AnswerFormat:
    """How one model marks its thoughts and its calls, as mlx-lm found in its tokenizer.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper``.
    """

    def __init__(self, tokenizer: Any) -> None:
        # Not at the top, for the reason that ``StopFilter`` gives.
        from mlx_lm.generate import make_text_state_machine

        self._tokenizer = tokenizer
        self._machine = make_text_state_machine(_WithoutTools(tokenizer))
        self._machine_with_tools = make_text_state_machine(tokenizer)
        self.speller = TokenSpeller(tokenizer)

    @property
    def has_tools(self) -> bool:
        """Whether the template tells a model of tools, and its calls can be read."""
        return bool(self._tokenizer.has_tool_calling)

    @property
    def has_parts(self) -> bool:
        """Whether an answer may be anything but text."""
        return bool(
            self.has_tools or self._tokenizer.has_thinking or self._tokenizer.response_transitions
        )

    def make_state(self, starts_in: str, *, with_tools: bool) -> Any:
        """A fresh state of mlx-lm's ``TextStateMachine``."""
        machine = self._machine_with_tools if with_tools else self._machine
        return machine.make_state(starts_in)

    def opened_part(self, prompt: Sequence[int]) -> str:
        """What the prompt has begun already: templates of thinking models often open a thought."""
        if stated := self._tokenizer.response_initial_state:
            return stated
        if not self._tokenizer.has_thinking:
            return "normal"
        # Its last few tokens only: further up, a user may have written the mark himself.
        tail = list(prompt[-_OPENING_TOKENS:])
        begun = self._tokenizer.rfind_think_start(tail)
        return "reasoning" if begun > self._tokenizer.rfind_think_end(tail) else "normal"

    def parse_calls(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        """The calls between two marks; empty if they can't be read."""
        shapes = [tool_shape(tool) for tool in tools]
        try:
            parsed = self._tokenizer.tool_parser(text, shapes)
            calls = cast("list[object]", parsed if isinstance(parsed, list) else [parsed])
            return [_read_call(call) for call in calls]
        except Exception:  # noqa: BLE001 - a model may write anything, and parsers raise anything
            return []

    def with_marks(self, text: str) -> str:
        """What the model wrote, of which only the inside is known."""
        return f"{self._tokenizer.tool_call_start}{text}{self._tokenizer.tool_call_end or ''}"


# What a template may put behind the mark: a line break or two, a word.
_OPENING_TOKENS = 12


class AnswerReader:
    """Turns the tokens of one answer into pieces that may be shown.

    A UTF-8 character is held back until all its bytes are there, what may be a mark or a stop
    string until it is known not to be one. Marks are not part of any piece. A call comes in one
    piece; one that can't be read is the text that it is.

    Args:
        detokenizer: a fresh one.
        answer_format: the model's.
        starts_in: the part that the prompt has opened.
        tools: those the model was told of; without any, marks of calls are text.
        stop: texts that end the answer.
        one_call: end the answer after its first call.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        answer_format: AnswerFormat,
        *,
        starts_in: str = "normal",
        tools: Sequence[Tool] = (),
        stop: Sequence[str] = (),
        one_call: bool = False,
    ) -> None:
        from mlx_lm.generate import TextStateMachine

        self._machine = TextStateMachine
        self._detokenizer = detokenizer
        self._format = answer_format
        self._tools = tools
        self._one_call = one_call
        self._stop = StopFilter(stop)
        self._state = answer_format.make_state(starts_in, with_tools=bool(tools))
        self._part: str | None = starts_in
        self._is_part_blank = answer_format.has_parts
        self._call_text = ""
        self._pieces: list[Piece] = []
        self._logprobs: list[Logprob] = []
        self._is_stopped = False
        self._reasoning_tokens = 0

    @property
    def is_stopped(self) -> bool:
        """Whether the answer is over, whatever the model goes on to write."""
        return self._is_stopped

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens were thoughts, their marks included."""
        return self._reasoning_tokens

    def feed(self, token: int, logprobs: TokenLogprobs | None = None) -> list[Piece]:
        """Take one token; returns what became certain, often nothing."""
        if self._is_stopped:
            return []
        part_before = self._part
        self._detokenizer.add_token(token)
        self._read(self._detokenizer.last_segment)
        self._reasoning_tokens += "reasoning" in (part_before, self._part)
        if logprobs is not None and part_before == self._part == "normal":
            self._logprobs.append(self._format.speller.logprob(token, logprobs))
        elif part_before != self._part:
            self._logprobs.clear()
        return self._take_pieces()

    def finish(self) -> list[Piece]:
        """The answer has ended: everything that was held back and isn't a stop string."""
        if self._is_stopped:
            return []
        self._detokenizer.finalize()
        self._read(self._detokenizer.last_segment)
        if not self._is_stopped:
            self._state, held_back, _ = self._machine.flush(self._state)
            self._add(held_back)
            self._leave_part()
        return self._take_pieces()

    def _read(self, text: str) -> None:
        self._state, segments = self._machine.split(self._state, text)
        for part, segment in segments:
            if self._is_stopped:
                return
            if part != self._part:
                self._leave_part()
                self._part = part
                self._is_part_blank = True
            self._add(segment)

    def _add(self, text: str) -> None:
        if self._part == "tool":
            self._call_text += text
            return
        if self._is_part_blank:
            # Templates set the parts of an answer apart by line breaks, which belong to none.
            text = text.lstrip()
            self._is_part_blank = not text
        if self._part == "reasoning":
            self._put("reasoning", text)
        elif self._part == "normal":
            self._put("text", self._stop.feed(text))
            self._is_stopped = self._is_stopped or self._stop.is_stopped

    def _leave_part(self) -> None:
        if self._part == "normal":
            self._put("text", self._stop.flush())
        elif self._part == "tool":
            self._end_call()

    def _end_call(self) -> None:
        text, self._call_text = self._call_text, ""
        calls = self._format.parse_calls(text, self._tools) if self._tools else []
        if not calls:
            self._put("text", self._format.with_marks(text))
            return
        kept = calls[:1] if self._one_call else calls
        self._pieces += [Piece("call", call=call) for call in kept]
        self._is_stopped = self._one_call

    def _put(self, kind: PieceKind, text: str) -> None:
        if not text:
            return
        if self._pieces and self._pieces[-1].kind == kind:
            text = self._pieces.pop().text + text
        self._pieces.append(Piece(kind, text))

    def _take_pieces(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        if self._logprobs and pieces and pieces[-1].kind == "text":
            pieces[-1] = replace(pieces[-1], logprobs=tuple(self._logprobs))
            self._logprobs.clear()
        return pieces


def tool_shape(tool: Tool) -> dict[str, object]:
    """A tool as chat templates and mlx-lm's parsers take it."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _read_call(call: object) -> ToolCall:
    if not isinstance(call, dict):
        raise TypeError("a call is an object")
    fields = cast("dict[str, object]", call)
    name, arguments, call_id = fields["name"], fields.get("arguments"), fields.get("id")
    if not isinstance(name, str):
        raise TypeError("a call has a name")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False, allow_nan=False)
    return ToolCall(call_id if isinstance(call_id, str) else "", name, arguments)


class _WithoutTools:
    """A tokenizer as mlx-lm's builder sees it when nobody offers tools."""

    has_tool_calling = False

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._tokenizer, name)
