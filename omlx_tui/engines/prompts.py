"""From messages to token ids, with the model's own tokenizer and chat template. No MLX arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Protocol, cast

from omlx_tui.engines.errors import ContextLengthError, PromptRefusedError
from omlx_tui.engines.model_config import context_tokens, read_json_object, sampling_defaults
from omlx_tui.engines.text import TextAssembler
from omlx_tui.engines.types import (
    GenerationRequest,
    ModelSpec,
    PreparedRequest,
    SamplingParams,
)


class Tokenizer(Protocol):
    """mlx-lm's ``TokenizerWrapper``, as far as it is used here."""

    detokenizer: Any
    eos_token_ids: set[int]
    has_chat_template: bool

    def apply_chat_template(self, conversation: Sequence[dict[str, str]], **kwargs: Any) -> Any: ...

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
        """
        prompt = self._render(request)
        room = self.context_tokens - len(prompt)
        if room < 1:
            raise ContextLengthError(self._model_id, len(prompt), self.context_tokens)
        wanted = room if request.max_tokens is None else min(request.max_tokens, room)
        return PreparedRequest(request=request, prompt=tuple(prompt), max_tokens=wanted)

    def resolve(self, sampling: SamplingParams, *, fallback_seed: int) -> SamplingParams:
        """Fill what the client left open with the model's defaults."""
        return _filled(_filled(sampling, self._defaults), SamplingParams(seed=fallback_seed))

    def assembler(self, stop: Sequence[str]) -> TextAssembler:
        return TextAssembler(self._tokenizer.detokenizer, stop)

    def _render(self, request: GenerationRequest) -> list[int]:
        if not self._tokenizer.has_chat_template:
            text = "\n\n".join(message.content for message in request.messages)
            return self._tokenizer.encode(text)
        turns = [{"role": turn.role, "content": turn.content} for turn in request.messages]
        try:
            return list(self._tokenizer.apply_chat_template(turns, add_generation_prompt=True))
        except Exception as error:  # templates raise what their authors chose
            detail = " ".join(str(error).split())
            raise PromptRefusedError(self._model_id, detail) from error


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
