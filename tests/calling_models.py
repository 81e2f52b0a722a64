"""A real model that thinks, calls a function and then speaks, made from a sample."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mlx_lm import generate, load

from tests.conftest import SAMPLE_MODELS

SAMPLE = "llama-1m-fp32"
MODEL_ID = "caller"
QUESTION = "Tell me a story about a fox."
ARGUMENTS = {"city": "Oslo"}
CALL_TEXT = f"<tool_call>\n{json.dumps({'name': 'weather', 'arguments': ARGUMENTS})}\n</tool_call>"
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}

# mlx-lm finds in it how the model calls; tools come behind the messages that they'd usually precede
# so that the tokens that the sample answers with hardly depend on them.
_TEMPLATE = """\
{# <tool_call> tool_call.name #}\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls %}{{ call.function.arguments | tojson }}\
{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_calling_model(root: Path) -> Path:
    """Make the folder of a model that answers ``QUESTION`` with a thought, a call and words.

    Its weights are a sample's. Three of its tokens have other texts: those that it answers with are
    the marks of a thought and a whole call, so that greedy decoding says what a large model would.
    """
    folder = root / MODEL_ID
    shutil.copytree(SAMPLE_MODELS / SAMPLE, folder)
    (folder / "chat_template.jinja").write_text(_TEMPLATE)
    prompt, answer = _prompt_and_answer(folder)
    begin, _, end, call, *_ = [
        token for token in answer if answer.count(token) == 1 and token not in prompt
    ]
    _rename(folder / "tokenizer.json", {begin: "<think>", end: "</think>", call: CALL_TEXT})
    return folder


def _prompt_and_answer(folder: Path) -> tuple[list[int], list[int]]:
    model, tokenizer = load(str(folder))
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True
    )
    text = generate(model, tokenizer, prompt, max_tokens=16)
    return prompt, tokenizer.encode(text, add_special_tokens=False)


def _rename(path: Path, texts: dict[int, str]) -> None:
    document = json.loads(path.read_text())
    model = document["model"]
    old = {token: text for text, token in model["vocab"].items() if token in texts}
    as_bytes = str.maketrans({" ": "Ġ", "\n": "Ċ"})
    for token, text in texts.items():
        del model["vocab"][old[token]]
        model["vocab"][text.translate(as_bytes)] = token
    gone = set(old.values())
    model["merges"] = [pair for pair in model["merges"] if not gone & {*pair, "".join(pair)}]
    path.write_text(json.dumps(document))
