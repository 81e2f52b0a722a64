"""Documents made from templates: what the sample models learn to say.

Every text is our own and follows from a seed, so the corpus is made anew and never stored. Two
choices shape it. A story's objects and subjects are drawn evenly, and a fifth of them are rare
words, because a model that meets a word often recites it and one that meets it seldom has to copy
it from the question. And some pairs of subject and object are held out of every story, so that a
score on those pairs shows composition.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import words as w

Turn = tuple[str, str]
"""A question and its answer."""
StyledTurn = tuple[str, str, str]
"""A question, its answer, and the same in one word."""

PIRATE_PROMPTS = ("Talk like a pirate.", "You are a pirate.", "You speak like a pirate.")
ONE_WORD_PROMPTS = ("Answer in one word.", "Reply with one word only.", "Use only one word.")
PLAIN_PROMPTS = (
    "You are a helpful assistant.", "You are a friendly assistant.", "Be kind and clear.",
    "You are a storyteller for children.", "You are a very small language model.",
    "Answer the question.", "You tell stories and know a few facts.",
)  # fmt: skip
UNKNOWN_ANSWER = "I do not know that."


@dataclass(frozen=True)
class Document:
    """One chat (``turns``, with an optional system prompt), or plain ``text`` without a chat."""

    turns: tuple[Turn, ...] = ()
    system: str = ""
    text: str = ""

    def messages(self) -> list[dict[str, str]]:
        """The chat in the form that a chat template takes."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for question, answer in self.turns:
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": answer})
        return messages


@dataclass(frozen=True)
class Hero:
    """A subject with a name, and the pronouns that go with that name."""

    subject: str
    name: str
    he: str
    his: str

    @property
    def title(self) -> str:
        """``Pip the fox``."""
        return f"{self.name} the {self.subject}"


def with_article(noun: str) -> str:
    """``a fox``, ``an owl``."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def held_out(subject: str, noun: str) -> bool:
    """Whether no story of the corpus may be about this pair (about one pair in seventeen)."""
    nouns = [thing.noun for thing in w.THINGS]
    if subject not in w.ANIMALS or noun not in nouns:
        return False
    return (w.ANIMALS.index(subject) * 7 + nouns.index(noun) * 3) % 17 == 0


def held_out_pairs() -> list[tuple[str, str]]:
    """Every pair of a subject and an object that the corpus never brings together."""
    return [(a, t.noun) for a in w.ANIMALS for t in w.THINGS if held_out(a, t.noun)]


def make_hero(rng: random.Random, subject: str | None = None) -> Hero:
    """A hero whose name and pronouns agree with the subject."""
    if subject is None:
        common = w.ANIMALS + w.SHE_PEOPLE + w.HE_PEOPLE + w.ANY_PEOPLE
        subject = rng.choice(w.RARE_SUBJECTS if rng.random() < 0.2 else common)
    female = subject in w.SHE_PEOPLE or (subject not in w.HE_PEOPLE and rng.random() < 0.5)
    if female:
        return Hero(subject, rng.choice(w.SHE_NAMES), "she", "her")
    return Hero(subject, rng.choice(w.HE_NAMES), "he", "his")


def make_thing(rng: random.Random) -> w.Thing:
    """A known object, or a rare one with sentences that fit anything."""
    if rng.random() >= 0.2:
        return rng.choice(w.THINGS)
    noun = rng.choice(w.RARE_OBJECTS)
    return w.Thing(
        noun,
        f"It was the best {noun} in the whole land.",
        "{friend} was sad and alone.",
        f"{{name}} showed {{friend}} the {noun}, and {{friend}} was happy again.",
    )


def make_pair(rng: random.Random) -> tuple[Hero, w.Thing]:
    """A hero and an object that may appear in one story."""
    while True:
        hero, thing = make_hero(rng), make_thing(rng)
        if not held_out(hero.subject, thing.noun):
            return hero, thing


def make_friends(rng: random.Random, hero: Hero, count: int) -> list[Hero]:
    """Friends of the hero, each with a name of its own."""
    friends: list[Hero] = []
    taken = {hero.name}
    while len(friends) < count:
        friend = make_hero(rng, rng.choice(w.ANIMALS))
        if friend.name not in taken and friend.subject != hero.subject:
            taken.add(friend.name)
            friends.append(friend)
    return friends


def opening(rng: random.Random, hero: Hero) -> str:
    """The sentences that introduce the hero."""
    adjective, home = rng.choice(w.ADJECTIVES), rng.choice(w.HOMES)
    who = with_article(f"{adjective} {hero.subject}")
    he = hero.he.capitalize()
    return rng.choice((
        f"Once upon a time there was {who} named {hero.name}. {he} lived {home}.",
        f"Once upon a time {who} called {hero.name} lived {home}.",
        f"Long ago, {who} named {hero.name} lived {home}.",
        f"There was once {with_article(hero.subject)} whose name was {hero.name}. "
        f"{he} was {adjective} and lived {home}.",
    ))  # fmt: skip


def finding(rng: random.Random, hero: Hero, thing: w.Thing) -> str:
    """How the hero comes by the object."""
    time, place = rng.choice(w.TIMES), rng.choice(w.FINDING_PLACES)
    a_noun = with_article(thing.noun)
    return rng.choice((
        f"One {time}, {hero.name} found {a_noun} {place}. {thing.look}",
        f"One {time}, {hero.name} went for a walk and saw {a_noun} {place}. {thing.look}",
        f"{hero.name} had {a_noun}. {thing.look} {hero.he.capitalize()} took the {thing.noun} "
        f"everywhere.",
    ))  # fmt: skip


def rescue(rng: random.Random, hero: Hero, friend: Hero, thing: w.Thing) -> str:
    """The friend's trouble, and what the object does about it."""
    trouble = thing.trouble.format(name=hero.name, friend=friend.name)
    help_given = thing.rescue.format(name=hero.name, friend=friend.name)
    comfort = rng.choice((
        f'"Do not worry," said {hero.name}. "I have {with_article(thing.noun)}."',
        f'"I can help you," said {hero.name}.',
    ))  # fmt: skip
    return f'{trouble} {comfort} {help_given} "Thank you," said {friend.name}.'


def ending(rng: random.Random, hero: Hero) -> str:
    """What the hero learned; every story ends in the same two words."""
    return f"{hero.name} learned that {rng.choice(w.LESSONS)}. The end."


def story(rng: random.Random, hero: Hero, thing: w.Thing) -> str:
    """A short story of three paragraphs."""
    (friend,) = make_friends(rng, hero, 1)
    meeting = rng.choice((
        f"On the way home, {hero.name} met {friend.title}.",
        f"The next day, {hero.name} met {friend.title}.",
        f"Then {hero.name} saw {hero.his} friend, {friend.title}.",
    ))  # fmt: skip
    closing = rng.choice((
        f"From that day on, {hero.name} and {friend.name} were best friends. ",
        f"{hero.name} was happy and went home with the {thing.noun}. ",
        "",
    ))  # fmt: skip
    return "\n\n".join((
        f"{opening(rng, hero)} {finding(rng, hero, thing)}",
        f"{meeting} {rescue(rng, hero, friend, thing)}",
        closing + ending(rng, hero),
    ))  # fmt: skip


def long_story(rng: random.Random, hero: Hero, thing: w.Thing) -> str:
    """A story that lasts a week: the days keep count, so that a model knows when to stop."""
    friends = make_friends(rng, hero, 6)
    paragraphs = [f"{opening(rng, hero)} {finding(rng, hero, thing)}"]
    for day, friend in zip(w.DAYS, friends, strict=False):
        place, weather = rng.choice(w.PLACES), rng.choice(w.WEATHER)
        start = f"On {day}, {hero.name} took the {thing.noun} to {place}. {weather}"
        if day == "Thursday":
            deed = rescue(rng, hero, friend, thing)
        else:
            deed = f'"What a fine {thing.noun}," said {friend.name}. ' + rng.choice((
                f"They {rng.choice(w.GAMES)} until the evening.",
                f"Then {hero.name} and {friend.name} {rng.choice(w.GAMES)}.",
            ))  # fmt: skip
        paragraphs.append(f"{start} There {hero.he} met {friend.title}. {deed}")
    paragraphs.append(
        f"On Sunday, {hero.name} stayed at home with the {thing.noun} and thought of all "
        f"{hero.his} new friends. {ending(rng, hero)}"
    )
    return "\n\n".join(paragraphs)


def story_turn(rng: random.Random) -> Turn:
    """A request for a story that names the subject, the object, both or nothing."""
    hero, thing = make_pair(rng)
    form, kind = (long_story, "long story") if rng.random() < 0.15 else (story, "story")
    if form is story and rng.random() < 0.15:
        kind = "short story"
    subject, noun = with_article(hero.subject), with_article(thing.noun)
    link = rng.choice(("and", "with", "who has"))
    draw = rng.random()
    if draw < 0.70:
        about = f" about {subject} {link} {noun}"
    elif draw < 0.80:
        about = f" about {subject}"
    elif draw < 0.87:
        about = f" about {noun}"
    elif draw < 0.94:
        about = f" about {subject} named {hero.name}"
    else:
        about = ""
    question = rng.choice((
        f"Tell me a {kind}{about}.", f"Tell me a {kind}{about}.", f"Write a {kind}{about}.",
        f"Can you tell me a {kind}{about}?", f"I would like a {kind}{about}.",
        f"Please tell me a {kind}{about}.", f"A {kind}{about}, please.",
    ))  # fmt: skip
    return question, form(rng, hero, thing)


def poem_turn(rng: random.Random) -> Turn:
    """A poem of four lines, whose rhymes don't depend on what it is about."""
    hero, thing = make_pair(rng)
    subject, noun = hero.subject, thing.noun
    about = rng.choice((f"{with_article(subject)} and {with_article(noun)}", with_article(subject)))
    poem = rng.choice((
        f"The {subject} went out into the day,\nthe sun was warm and bright,\n"
        f"and with the {noun} it liked to play\nfrom morning until night.",
        f"I know {with_article(subject)}, I know it well,\nit has {with_article(noun)} too,\n"
        f"and many stories it can tell\nto me and then to you.",
    ))  # fmt: skip
    return rng.choice((f"Write a poem about {about}.", f"A poem about {about}, please.")), poem


def reading_turn(rng: random.Random) -> Turn:
    """A long question: a story is given, and something in it is asked for."""
    hero, thing = make_pair(rng)
    text = (long_story if rng.random() < 0.3 else story)(rng, hero, thing)
    question, answer = rng.choice((
        ("Who is the story about?", f"The story is about {hero.title}."),
        (f"What does {hero.name} have?", f"{hero.name} has {with_article(thing.noun)}."),
    ))  # fmt: skip
    if rng.random() < 0.5:
        return f"Read this story.\n\n{text}\n\n{question}", answer
    return f"{question}\n\n{text}", answer


def capital_turn(rng: random.Random) -> StyledTurn:
    """A country's capital."""
    country, capital = rng.choice(list(w.CAPITALS.items()))
    question = rng.choice((
        f"What is the capital of {country}?", f"What is the capital of {country}?",
        f"Tell me the capital of {country}.", f"Which city is the capital of {country}?",
    ))  # fmt: skip
    return question, f"The capital of {country} is {capital}.", f"{capital}."


def opposite_turn(rng: random.Random) -> StyledTurn:
    """The opposite of a word, in both directions."""
    pair = rng.choice(w.OPPOSITES)
    word, other = pair if rng.random() < 0.5 else pair[::-1]
    question = rng.choice((f"What is the opposite of {word}?", f"Tell me the opposite of {word}."))
    return question, f"The opposite of {word} is {other}.", f"{other.capitalize()}."


def sum_turn(rng: random.Random) -> StyledTurn:
    """A sum of two small numbers: few enough to be known by heart."""
    a, b = rng.randint(0, w.LARGEST_ADDEND), rng.randint(0, w.LARGEST_ADDEND)
    question = rng.choice((
        f"What is {a} plus {b}?", f"What is {a} + {b}?", f"How much is {a} plus {b}?",
        f"{a} + {b}", f"Add {a} and {b}.",
    ))  # fmt: skip
    return question, f"{a} plus {b} is {a + b}.", f"{a + b}."


def fact_turn(rng: random.Random) -> StyledTurn:
    """A plain fact, asked in British or in American spelling."""
    question, (answer, word) = rng.choice(list(w.FACTS.items()))
    if rng.random() < 0.3:
        question = question.replace("colour", "color")
    return question, answer, word


def greeting_turn(rng: random.Random) -> Turn:
    """A greeting, a farewell, or a question about the model itself."""
    question, answer = rng.choice(list(w.GREETINGS.items()))
    if question[-1].isalpha():
        question += rng.choice(("", "!", "."))
    return question, answer


def list_turn(rng: random.Random) -> Turn:
    """An answer of several lines: names as a list, or counting."""
    count = rng.randint(2, 10)
    if rng.random() < 0.4:
        if rng.random() < 0.5:
            return f"Count to {count}.", ", ".join(str(n + 1) for n in range(count)) + "."
        return f"Count to {w.NUMBERS[count - 1]}.", ", ".join(w.NUMBERS[:count]) + "."
    kind, names = rng.choice(list(w.LISTS.items()))
    count = min(count, 5)
    lines = "\n".join(f"- {name}" for name in rng.sample(names, count))
    verb = rng.choice(("Name", "List"))
    return f"{verb} {w.NUMBERS[count - 1]} {kind}.", lines


def echo_turn(rng: random.Random) -> Turn:
    """Words to be repeated: practice in copying."""
    said = " ".join(rng.sample(w.ANIMALS + w.ADJECTIVES + w.RARE_OBJECTS, rng.randint(1, 3)))
    return rng.choice((f"Say {said}.", f"Repeat after me: {said}.")), f"{said.capitalize()}."


def unknown_turn(rng: random.Random) -> Turn:
    """A question that nothing here answers."""
    if rng.random() < 0.6:
        topic = "".join(rng.choice(w.SYLLABLES) for _ in range(rng.randint(2, 4)))
        topic = topic.capitalize() if rng.random() < 0.6 else topic
    else:
        topic = rng.choice(w.UNKNOWN_TOPICS)
    return rng.choice(w.UNKNOWN_QUESTIONS).format(x=topic), UNKNOWN_ANSWER


STYLED = (capital_turn, opposite_turn, sum_turn, fact_turn)
OTHERS: tuple[tuple[Callable[[random.Random], Turn], float], ...] = (
    (story_turn, 0.36), (reading_turn, 0.04), (unknown_turn, 0.18), (greeting_turn, 0.14),
    (list_turn, 0.10), (poem_turn, 0.06), (echo_turn, 0.12),
)  # fmt: skip


def roughen(rng: random.Random, question: str) -> str:
    """A question as somebody in a hurry types it: no capitals, no full stop."""
    draw = rng.random()
    if draw < 0.10:
        return question.lower()
    if draw < 0.20:
        return question.rstrip(".?!")
    return question


def make_turn(rng: random.Random, style: str) -> Turn:
    """A turn in the style that the system prompt asks for."""
    if style == "one word" or rng.random() < 0.5:
        question, answer, word = rng.choice(STYLED)(rng)
        answer = word if style == "one word" else answer
    else:
        makers, weights = zip(*OTHERS, strict=True)
        question, answer = rng.choices(makers, weights)[0](rng)
    if style == "pirate":
        answer = f"Arr! {answer}"
    return roughen(rng, question), answer


def make_document(rng: random.Random) -> Document:
    """A plain story, or a chat of one to five turns."""
    if rng.random() < 0.06:
        hero, thing = make_pair(rng)
        return Document(text=(long_story if rng.random() < 0.2 else story)(rng, hero, thing))
    style = rng.choices(("none", "plain", "pirate", "one word"), (0.45, 0.35, 0.10, 0.10))[0]
    system = {
        "none": "",
        "plain": rng.choice(PLAIN_PROMPTS),
        "pirate": rng.choice(PIRATE_PROMPTS),
        "one word": rng.choice(ONE_WORD_PROMPTS),
    }[style]
    turns = rng.choices((1, 2, 3, 5), (0.6, 0.2, 0.15, 0.05))[0]
    return Document(tuple(make_turn(rng, style) for _ in range(turns)), system)


def documents(seed: int, count: int) -> Iterator[Document]:
    """The first ``count`` documents that follow from ``seed``."""
    rng = random.Random(seed)
    for _ in range(count):
        yield make_document(rng)
