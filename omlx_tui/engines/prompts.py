"""From messages to token ids, with the model's own tokenizer and chat template. No MLX arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Protocol, cast

from omlx_tui.engines.answers import AnswerFormat, AnswerReader, tool_shape
from omlx_tui.engines.errors import (
    ContextLengthError,
    PromptRefusedError,
    ToolsNotSupportedError,
)
from omlx_tui.engines.model_config import context_tokens, read_json_object, sampling_defaults
from omlx_tui.engines.types import (
    GenerationRequest,
    Message,
    ModelSpec,
    PreparedRequest,
    SamplingParams,
    ToolCall,
)

Turn = dict[str, object]
"""A message in the shape that chat templates share."""


class Tokenizer(Protocol):
    """mlx-lm's ``TokenizerWrapper``, as far as it is used here."""

    detokenizer: Any
    eos_token_ids: set[int]
    has_chat_template: bool

    def apply_chat_template(self, conversation: Sequence[Turn], **kwargs: Any) -> Any: ...

    def encode(self, text: str) -> list[int]: ...


class Prompter:
    """Reads and writes one model's language."""

    def __init__(
        self,
        model_id: str,
        tokenizer: Tokenizer,
        *,
        context_tokens: int,
        defaults: SamplingParams,
    ) -> None:
        self._model_id = model_id
        self._tokenizer = tokenizer
        self._defaults = defaults
        self._format = AnswerFormat(tokenizer)
        self.context_tokens = context_tokens
        self.stop_tokens = tuple(sorted(tokenizer.eos_token_ids))

    @classmethod
    def from_folder(cls, spec: ModelSpec) -> Prompter:
        """Load the tokenizer and the model's defaults; takes up to a second, so not on a loop.

        Raises:
            Exception: whatever the libraries raise about the files.
        """
        from mlx_lm.utils import load_config, load_tokenizer

        config = load_config(spec.path)
        tokenizer = load_tokenizer(spec.path, eos_token_ids=_as_list(config.get("eos_token_id")))
        generation_config = read_json_object(spec.path / "generation_config.json")
        context = context_tokens(config)
        return cls(
            spec.model_id,
            cast("Tokenizer", tokenizer),
            context_tokens=min(context, spec.context_limit or context),
            defaults=_filled(spec.sampling, sampling_defaults(generation_config)),
        )

    def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Render and tokenise the messages and settle how long the answer may be.

        Raises:
            ContextLengthError: the prompt leaves no room for an answer.
            PromptRefusedError: the chat template refuses the messages.
            ToolsNotSupportedError: it has no place for tools, and there are some.
        """
        if not self._format.has_tools and _speaks_of_tools(request):
            raise ToolsNotSupportedError(self._model_id)
        prompt = self._render(request)
        room = self.context_tokens - len(prompt)
        if room < 1:
            raise ContextLengthError(self._model_id, len(prompt), self.context_tokens)
        wanted = room if request.max_tokens is None else min(request.max_tokens, room)
        return PreparedRequest(
            request=request,
            prompt=tuple(prompt),
            max_tokens=wanted,
            starts_in=self._format.opened_part(prompt),
        )

    def resolve(self, sampling: SamplingParams, *, fallback_seed: int) -> SamplingParams:
        """Fill what the client left open with the model's defaults."""
        return _filled(_filled(sampling, self._defaults), SamplingParams(seed=fallback_seed))

    def reader(self, prepared: PreparedRequest) -> AnswerReader:
        """What makes an answer of the tokens that follow a prompt."""
        request = prepared.request
        return AnswerReader(
            self._tokenizer.detokenizer,
            self._format,
            starts_in=prepared.starts_in,
            tools=request.tools,
            stop=request.stop,
            one_call=not request.parallel_tool_calls,
        )

    def _render(self, request: GenerationRequest) -> list[int]:
        if not self._tokenizer.has_chat_template:
            text = "\n\n".join(message.content for message in request.messages)
            return self._tokenizer.encode(text)
        turns = [_turn(message) for message in request.messages]
        try:
            return list(
                self._tokenizer.apply_chat_template(
                    turns, add_generation_prompt=True, **_template_options(request)
                )
            )
        except Exception as error:  # templates raise what their authors chose
            detail = " ".join(str(error).split())
            raise PromptRefusedError(self._model_id, detail) from error


def _speaks_of_tools(request: GenerationRequest) -> bool:
    return bool(request.tools) or any(
        message.tool_calls or message.role == "tool" for message in request.messages
    )


def _template_options(request: GenerationRequest) -> dict[str, object]:
    """What a template is told beside the messages; only what was asked for, as not all know it."""
    options: dict[str, object] = {}
    if request.tools:
        options["tools"] = [tool_shape(tool) for tool in request.tools]
    if request.thinking is not None:
        options["enable_thinking"] = request.thinking != "off"
        if request.thinking != "off":
            options["reasoning_effort"] = request.thinking
    return options


def _turn(message: Message) -> Turn:
    turn: Turn = {"role": message.role, "content": message.content}
    if message.reasoning:
        # Two names for it are in use; a template reads the one that its model was trained with.
        turn["reasoning_content"] = turn["thinking"] = message.reasoning
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.role == "tool":
        turn["tool_call_id"] = message.call_id
        turn["name"] = message.name
    return turn


def _call(call: ToolCall) -> Turn:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments
    function = {"name": call.name, "arguments": arguments}
    return {"type": "function", "id": call.call_id, "function": function}


def _filled(sampling: SamplingParams, defaults: SamplingParams) -> SamplingParams:
    """What one says, and where it says nothing, what the other does."""
    stated = {
        field.name: value
        for field in fields(SamplingParams)
        if (value := getattr(sampling, field.name)) is not None
    }
    return replace(defaults, **stated)


def _as_list(eos: object) -> list[int] | None:
    if isinstance(eos, int):
        return [eos]
    return cast("list[int]", eos) if isinstance(eos, list) else None
