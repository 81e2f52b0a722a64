"""The tokenizer that all sample models share, and documents as windows of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from .corpus import Document

VOCABULARY = 1024
CONTEXT = 1024
WINDOW = 768
"""Tokens in a training window: the longest chats of the corpus, at three quarters of the cost."""
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
IGNORED = -100
"""The label of a token that is read but not learned."""
Encoded = tuple[list[int], list[int]]
"""A document's tokens and labels."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def segments(document: Document) -> list[tuple[str, bool]]:
    """The text of a document in pieces, each with whether a model learns to say it.

    Questions are read only: their words are drawn at random, so there is nothing to learn from
    guessing them, and a small model's capacity goes into the answers.
    """
    if document.text:
        return [(document.text + END, True)]
    pieces: list[tuple[str, bool]] = []
    for message in document.messages():
        answer = message["role"] == "assistant"
        pieces.append((f"{START}{message['role']}\n", False))
        pieces.append((message["content"] + END, answer))
        pieces.append(("\n", False))
    return pieces


def train_tokenizer(documents: Iterable[Document]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with ChatML markers; any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (text.removesuffix(END) for document in documents for text, _ in segments(document))
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def encode(tokenizer: PreTrainedTokenizerFast, documents: Iterable[Document]) -> Iterator[Encoded]:
    """The tokens and labels of each document."""
    backend = tokenizer.backend_tokenizer
    for document in documents:
        tokens: list[int] = []
        labels: list[int] = []
        for text, learned in segments(document):
            ids = backend.encode(text, add_special_tokens=False).ids
            tokens += ids
            labels += ids if learned else [IGNORED] * len(ids)
        yield tokens[:WINDOW], labels[:WINDOW]


def pack(pad: int, encoded: Iterable[Encoded]) -> tuple[np.ndarray, np.ndarray]:
    """Documents laid one after another into windows of ``WINDOW`` tokens.

    A window always begins with the beginning of a document, as a prompt does in use, and holds
    whole documents. One that doesn't fit waits for a later window.
    """
    waiting: list[Encoded] = []
    token_rows: list[list[int]] = []
    label_rows: list[list[int]] = []
    tokens: list[int] = []
    labels: list[int] = []
    for document in encoded:
        waiting.append(document)
        if len(waiting) < 16:
            continue
        fitting = (i for i, (ids, _) in enumerate(waiting) if len(tokens) + len(ids) <= WINDOW)
        chosen = next(fitting, None)
        if chosen is None:
            padding = WINDOW - len(tokens)
            token_rows.append(tokens + [pad] * padding)
            label_rows.append(labels + [IGNORED] * padding)
            tokens, labels, chosen = [], [], 0
        ids, learned = waiting.pop(chosen)
        tokens, labels = tokens + ids, labels + learned
    return np.array(token_rows, dtype=np.int16), np.array(label_rows, dtype=np.int16)
