"""What can go wrong in an engine."""

from __future__ import annotations


class EngineError(Exception):
    """An engine could not do what it was asked; the message says what and why."""


class LoadFailedError(EngineError):
    """A model's files could not be turned into a running engine."""


class ContextLengthError(EngineError):
    """A prompt leaves no room for an answer in the model's context."""

    def __init__(self, model_id: str, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens} tokens; {model_id} reads at most "
            f"{context_tokens}, of which one is needed for the answer. Shorten the input."
        )
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class KVBudgetError(EngineError):
    """A request would need more KV cache than its model may ever take."""

    def __init__(
        self,
        model_id: str,
        *,
        prompt_tokens: int,
        answer_tokens: int,
        needed_bytes: int,
        budget_bytes: int,
    ) -> None:
        super().__init__(
            f"{prompt_tokens} tokens of prompt and up to {answer_tokens} of answer can need "
            f"{needed_bytes:,} bytes of KV cache; {model_id} may take {budget_bytes:,}. "
            "Shorten the input, ask for a shorter answer, or give the model more memory."
        )
        self.prompt_tokens = prompt_tokens
        self.answer_tokens = answer_tokens
        self.needed_bytes = needed_bytes
        self.budget_bytes = budget_bytes


class PromptRefusedError(EngineError):
    """The model's chat template can't express these messages."""

    def __init__(self, model_id: str, reason: str) -> None:
        super().__init__(f"{model_id}'s chat template refuses these messages: {reason}")
        self.reason = reason


class ToolsNotSupportedError(EngineError):
    """The model was not made to call functions, or mlx-lm can't read its calls."""

    def __init__(self, model_id: str) -> None:
        super().__init__(
            f"{model_id}'s chat template has no tools, so it can't be asked with tools, tool calls "
            "or tool results. Leave them out, or ask a model that was trained to call functions."
        )


class EngineLostError(EngineError):
    """The thread that ran the models has died in the middle of something."""


class EngineClosedError(EngineError):
    """The engine was unloaded, or its thread has ended."""


class DeviceError(EngineError):
    """MLX is installed without a backend that it could run on."""

    def __init__(self) -> None:
        super().__init__(
            "MLX has no backend here. Install one: pip install 'omlx-tui[cpu]', "
            "or 'omlx-tui[cuda]' for an NVIDIA card."
        )
