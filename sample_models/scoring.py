"""How well a sample model says what it was trained to say, asked through mlx-lm.

The scores measure memory. Capitals, opposites, facts and sums were all in the corpus, word for
word. Only the stories ask for something that was not: a subject and an object that never met.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm import load
from mlx_lm.generate import generate_step
from mlx_lm.tokenizer_utils import TokenizerWrapper

from . import corpus
from . import words as w

SEED = 7
ANSWER_LIMIT, STORY_LIMIT = 60, 640
STORIES, LONG_STORIES, READINGS, SUMS, UNKNOWNS = 20, 3, 20, 30, 20


@dataclass(frozen=True)
class Score:
    """``right`` answers of ``asked``, and one wrong answer to look at."""

    right: int
    asked: int
    miss: str = ""

    def __str__(self) -> str:
        return f"{self.right}/{self.asked}"


class Speaker:
    """A loaded model that answers single questions, always with its likeliest token."""

    def __init__(self, folder: Path) -> None:
        self.model: nn.Module
        self.tokenizer: TokenizerWrapper
        self.model, self.tokenizer = load(str(folder))

    def answer(self, question: str, limit: int, system: str = "") -> str | None:
        """The answer, or None when the model did not stop by itself within ``limit`` tokens."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": question})
        prompt = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        said: list[int] = []
        for token, _ in generate_step(mx.array(prompt), self.model, max_tokens=limit):
            if token in self.tokenizer.eos_token_ids:
                return self.tokenizer.decode(said)
            said.append(token)
        return None


@cache
def known_words() -> frozenset[str]:
    """Every word of the stories that the corpus can tell."""
    texts = (text for document in corpus.documents(0, 4000) for _, text in document.turns)
    return frozenset(word for text in texts for word in re.findall(r"[A-Za-z]+", text))


def is_clean_story(text: str | None, subject: str, noun: str) -> bool:
    """Whether a story ends, is about what was asked for, and is made of real words only.

    Small models have two habits of their own that count as faults: to go round in circles, and to
    forget the hero's name by the next paragraph.
    """
    if text is None or not text.endswith("The end."):
        return False
    told = re.findall(r"[A-Za-z]+", text)
    paragraphs = text.split("\n\n")
    hero = re.search(r"(?:named|called|name was) (\w+)", paragraphs[0])
    return (
        hero is not None
        and all(hero[1] in paragraph for paragraph in paragraphs)
        and subject in told
        and told.count(noun) >= 2
        and set(told) <= known_words()
        and len(set(paragraphs)) == len(paragraphs)
    )


def score_exact(speaker: Speaker, expected: dict[str, str], system: str = "") -> Score:
    """Questions with one right answer, word for word."""
    right, miss = 0, ""
    for question, answer in expected.items():
        said = speaker.answer(question, ANSWER_LIMIT, system)
        if said == answer:
            right += 1
        else:
            miss = miss or f"{question} -> {said}"
    return Score(right, len(expected), miss)


def score_stories(speaker: Speaker, kind: str, count: int) -> Score:
    """Stories about pairs that the corpus never brings together."""
    pairs = random.Random(SEED).sample(corpus.held_out_pairs(), count)
    right, miss = 0, ""
    for subject, noun in pairs:
        about = f"{corpus.with_article(subject)} and {corpus.with_article(noun)}"
        said = speaker.answer(f"Tell me a {kind} about {about}.", STORY_LIMIT)
        if is_clean_story(said, subject, noun):
            right += 1
        else:
            miss = miss or f"{about} -> {said}"
    return Score(right, count, miss)


def capitals() -> dict[str, str]:
    """Every capital, in the commonest form of the question."""
    return {
        f"What is the capital of {land}?": f"The capital of {land} is {city}."
        for land, city in w.CAPITALS.items()
    }


def opposites() -> dict[str, str]:
    """Every pair of opposites, in one direction."""
    return {
        f"What is the opposite of {word}?": f"The opposite of {word} is {other}."
        for word, other in w.OPPOSITES
    }


def sums() -> dict[str, str]:
    """Some of the sums."""
    pairs = random.Random(SEED).sample(list(product(range(w.LARGEST_ADDEND + 1), repeat=2)), SUMS)
    return {f"What is {a} plus {b}?": f"{a} plus {b} is {a + b}." for a, b in pairs}


def unknowns() -> dict[str, str]:
    """Questions about words made up anew; a few may have been in the corpus by chance."""
    rng = random.Random(SEED)
    return dict(corpus.unknown_turn(rng) for _ in range(UNKNOWNS))


def readings() -> dict[str, str]:
    """Prompts of a hundred to five hundred tokens: a story, and a question about it."""
    rng = random.Random(SEED)
    return dict(corpus.reading_turn(rng) for _ in range(READINGS))


CATEGORIES: dict[str, Callable[[Speaker], Score]] = {
    "stories": lambda speaker: score_stories(speaker, "story", STORIES),
    "long stories": lambda speaker: score_stories(speaker, "long story", LONG_STORIES),
    "reading": lambda speaker: score_exact(speaker, readings()),
    "capitals": lambda speaker: score_exact(speaker, capitals()),
    "in one word": lambda speaker: score_exact(
        speaker,
        {f"What is the capital of {land}?": f"{city}." for land, city in w.CAPITALS.items()},
        corpus.ONE_WORD_PROMPTS[0],
    ),
    "opposites": lambda speaker: score_exact(speaker, opposites()),
    "sums": lambda speaker: score_exact(speaker, sums()),
    "facts": lambda speaker: score_exact(
        speaker, {question: answer for question, (answer, _) in w.FACTS.items()}
    ),
    "greetings": lambda speaker: score_exact(speaker, w.GREETINGS),
    "unknown": lambda speaker: score_exact(speaker, unknowns()),
}


def score(folder: Path) -> dict[str, Score]:
    """The model's score in every category."""
    speaker = Speaker(folder)
    return {name: measure(speaker) for name, measure in CATEGORIES.items()}
