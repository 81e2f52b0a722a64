"""The words that the sample corpus is made of.

Only tables live here, so that the templates in ``corpus.py`` stay readable. All of it was written
for this project. The questions are of the kind whose answer fits in one line, because a model of
a million parameters learns them by heart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thing:
    """An object that a story turns on.

    ``trouble`` and ``rescue`` are sentence templates over ``name`` and ``friend``. They belong
    together: the rescue answers the trouble, which keeps a generated story coherent.
    """

    noun: str
    look: str
    trouble: str
    rescue: str


SHE_NAMES = ("Mia", "Lily", "Nora", "Ruby", "Tess", "Wren", "Ivy", "Poppy", "Hazel", "Luna")
HE_NAMES = (
    "Pip", "Tom", "Max", "Finn", "Otto", "Hugo", "Sam", "Ned", "Leo", "Bruno",  # codespell:ignore
)  # fmt: skip

ANIMALS = (
    "fox", "bear", "rabbit", "mouse", "owl", "cat", "dog", "frog", "duck", "hedgehog",
    "squirrel", "turtle", "goat", "lamb", "pony", "badger", "otter", "robin", "snail", "bee",
    "elephant", "lion", "penguin", "whale", "monkey", "hen", "pig", "cow", "horse", "wolf",
)  # fmt: skip
SHE_PEOPLE = ("girl", "queen", "princess", "grandmother")
HE_PEOPLE = ("boy", "king", "prince", "grandfather")
ANY_PEOPLE = ("farmer", "baker", "sailor", "gardener", "robot", "dragon", "giant", "wizard")
# Subjects that appear too seldom to be known by heart: they teach the models to copy.
RARE_SUBJECTS = (
    "camel", "crab", "crow", "deer", "donkey", "eagle", "ferret", "goose", "hamster", "kitten",
    "lizard", "mole", "moose", "newt", "octopus", "panda", "parrot", "puppy", "raven", "seal",
    "shark", "sheep", "spider", "swan", "tiger", "toad", "zebra", "beaver", "dolphin", "giraffe",
    "painter", "teacher", "doctor", "pirate", "knight", "clown", "pilot", "ghost", "fairy",
    "astronaut", "cook", "postman", "miner", "singer", "shepherd", "snowman", "monster", "mermaid",
)  # fmt: skip

THINGS = (
    Thing("lantern", "It glowed like a small sun.",
          "{friend} could not find the way home in the dark.",
          "{name} held up the lantern, and the path grew bright."),
    Thing("kite", "It had a long red tail.",
          "{friend} wanted to send a letter to the clouds.",
          "{name} tied the letter to the kite, and the wind took it up."),
    Thing("key", "It was made of old gold.",
          "{friend} stood before a locked door.",
          "{name} turned the key, and the door opened with a click."),
    Thing("drum", "It said boom when you touched it.",
          "{friend} was lost in the fog.",
          "{name} beat the drum, and {friend} followed the sound."),
    Thing("boat", "It was painted blue and white.",
          "{friend} sat on the far side of the lake.",
          "{name} rowed the boat across and brought {friend} home."),
    Thing("map", "It showed every hill and stream.",
          "{friend} did not know which way to go.",
          "{name} opened the map and found the right road."),
    Thing("ball", "It was round and very bouncy.",
          "{friend} had no one to play with.",
          "{name} rolled the ball to {friend}, and they played together."),
    Thing("hat", "It was tall and green.",
          "{friend} was cold in the rain.",
          "{name} put the hat on {friend}, and the rain did not matter."),
    Thing("bell", "It rang as clear as water.",
          "{friend} had fallen asleep and missed supper.",
          "{name} rang the bell, and {friend} woke up and laughed."),
    Thing("book", "It was full of pictures.",
          "{friend} was sick in bed.",
          "{name} read the book aloud, and {friend} felt better."),
    Thing("rope", "It was strong and very long.",
          "{friend} had slipped into a deep hole.",
          "{name} let down the rope and pulled {friend} out."),
    Thing("ladder", "It had twelve steps.",
          "{friend} was stuck high up in a tree.",
          "{name} set the ladder on the tree, and {friend} climbed down."),
    Thing("basket", "It smelled of fresh grass.",
          "{friend} had too many apples to carry.",
          "{name} filled the basket with apples and carried it home."),
    Thing("flute", "It was cut from a thin branch.",
          "{friend} could not fall asleep.",
          "{name} played the flute until {friend} closed both eyes."),
    Thing("umbrella", "It was as yellow as a lemon.",
          "{friend} was getting wet in the storm.",
          "{name} opened the umbrella, and there was room for two."),
    Thing("blanket", "It was soft and warm.",
          "{friend} was shaking with cold.",
          "{name} wrapped the blanket around {friend}."),
    Thing("spoon", "It was made of wood.",
          "{friend} had made soup but could not eat it.",
          "{name} gave {friend} the spoon, and the soup was good."),
    Thing("wheel", "It turned without a sound.",
          "{friend} had a cart that would not move.",
          "{name} put the wheel on the cart, and off it went."),
    Thing("mirror", "It was as bright as the moon.",
          "{friend} thought that nobody smiled anymore.",
          "{name} showed {friend} the mirror, and {friend} smiled."),
    Thing("seed", "It was no bigger than a tear.",
          "{friend} was sad because the garden was empty.",
          "{name} planted the seed, and a flower grew."),
    Thing("feather", "It was light and blue.",
          "{friend} had forgotten how to laugh.",
          "{name} tickled {friend} with the feather."),
    Thing("coin", "It was silver on both sides.",
          "{friend} was hungry and had no bread.",
          "{name} paid with the coin and shared the bread."),
    Thing("candle", "It burned with a quiet flame.",
          "{friend} was afraid of the night.",
          "{name} lit the candle, and the night was not so dark."),
    Thing("shell", "It held the sound of the sea.",
          "{friend} missed the sea.",
          "{name} held the shell to the ear of {friend}."),
    Thing("ring", "It shone like a star.",
          "{friend} was getting married and had lost everything.",
          "{name} gave {friend} the ring, and everyone danced."),
    Thing("clock", "It went tick and tock.",
          "{friend} was always late.",
          "{name} wound the clock, and {friend} was on time."),
    Thing("broom", "It was made of straw.",
          "{friend} had a house full of dust.",
          "{name} swept with the broom until the house was clean."),
    Thing("cup", "It had a small blue flower on it.",
          "{friend} was very thirsty.",
          "{name} filled the cup with water, and {friend} drank."),
    Thing("box", "It had a silver lock.",
          "{friend} had nowhere to keep the treasure.",
          "{name} opened the box, and the treasure was safe."),
    Thing("pillow", "It was stuffed with clouds.",
          "{friend} had walked all day and was tired.",
          "{name} gave {friend} the pillow, and {friend} slept."),
    Thing("violin", "It had four golden strings.",
          "{friend} had a party without music.",
          "{name} played the violin, and all of them danced."),
    Thing("telescope", "It was longer than an arm.",
          "{friend} was looking for a lost star.",
          "{name} looked through the telescope and found the star."),
    Thing("pot", "It was black and heavy.",
          "{friend} had nothing warm to eat.",
          "{name} cooked soup in the pot, and there was enough for all."),
    Thing("button", "It was round and red.",
          "{friend} had a coat that would not close.",
          "{name} sewed the button on the coat."),
    Thing("scarf", "It had stripes of every colour.",
          "{friend} had a sore throat.",
          "{name} put the scarf around {friend}."),
    Thing("sled", "It was fast and shiny.",
          "{friend} was too tired to walk through the snow.",
          "{name} pulled {friend} home on the sled."),
    Thing("whistle", "It was small and loud.",
          "{friend} had lost three little ducks.",
          "{name} blew the whistle, and the ducks came running."),
    Thing("stone", "It was smooth and warm.",
          "{friend} had cold hands.",
          "{name} gave {friend} the stone, and the hands were warm."),
    Thing("net", "It was thin but strong.",
          "{friend} had dropped a shoe into the river.",
          "{name} caught the shoe with the net."),
    Thing("balloon", "It wanted to fly away.",
          "{friend} wished to see the land from above.",
          "{name} gave {friend} the balloon, and they watched it rise."),
)  # fmt: skip

# Objects without a trouble of their own, again so that a name is copied and not recalled.
RARE_OBJECTS = (
    "apple", "arrow", "axe", "barrel", "bench", "bicycle", "bone", "bottle", "bowl", "bracelet",
    "brick", "bridge", "brush", "bucket", "bus", "cake", "camera", "card", "carpet", "castle",
    "chair", "cheese", "chest", "cloak", "coat", "comb", "computer", "cookie", "crown", "curtain",
    "diamond", "doll", "door", "egg", "engine", "envelope", "fan", "fence", "flag", "flower",
    "fork", "fountain", "gate", "gift", "glass", "glove", "guitar", "hammer", "harp", "helmet",
    "hook", "horn", "jar", "jewel", "kettle", "lamp", "leaf", "lemon", "letter", "lock",
    "magnet", "marble", "mask", "medal", "mill", "moon", "mushroom", "nail", "necklace", "nest",
    "needle", "nut", "oven", "paddle", "paintbrush", "pan", "pear", "pearl", "pen", "pencil",
    "piano", "picture", "pie", "pipe", "plate", "plough", "pocket", "pumpkin", "puzzle", "rocket",
    "rose", "saddle", "sail", "saw", "scroll", "ship", "shoe", "shovel", "sock", "spaceship",
    "star", "statue", "stick", "suitcase", "swing", "sword", "table", "tent", "ticket", "torch",
    "tower", "toy", "train", "tree", "trumpet", "truck", "vase", "wagon", "wand", "watch",
    "window", "wing", "yo-yo", "zipper",
)  # fmt: skip

ADJECTIVES = ("small", "brave", "kind", "clever", "shy", "cheerful", "curious", "gentle")
HOMES = (
    "in a house at the edge of the forest", "near a quiet river", "on top of a green hill",
    "in a village by the sea", "under an old oak tree", "beside a field of flowers",
)  # fmt: skip
TIMES = ("morning", "evening", "summer day", "winter day", "rainy day", "sunny day")
FINDING_PLACES = (
    "under a bush", "beside the road", "in the tall grass", "at the bottom of the garden",
    "behind a big rock", "on the beach",
)  # fmt: skip
PLACES = (
    "the river", "the hill", "the market", "the forest", "the old bridge", "the lake",
    "the garden", "the village",
)  # fmt: skip
GAMES = (
    "sang songs", "told stories", "played games", "ate berries", "counted clouds",
    "danced in a circle",
)  # fmt: skip
WEATHER = (
    "The sun was warm.", "A soft wind was blowing.", "It was raining a little.",
    "Snow was falling.", "The sky was blue.", "The birds were singing.",
)  # fmt: skip
LESSONS = (
    "it is good to share", "a friend is better than gold", "small things can help a lot",
    "being kind makes everyone happy", "it is brave to ask for help",
)  # fmt: skip

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "England": "London", "Ireland": "Dublin", "Norway": "Oslo",
    "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Poland": "Warsaw",
    "Austria": "Vienna", "Greece": "Athens", "Hungary": "Budapest", "Belgium": "Brussels",
    "Egypt": "Cairo", "Kenya": "Nairobi", "Japan": "Tokyo", "China": "Beijing",
    "India": "New Delhi", "Russia": "Moscow", "Canada": "Ottawa", "Mexico": "Mexico City",
    "Brazil": "Brasilia", "Argentina": "Buenos Aires", "Chile": "Santiago", "Peru": "Lima",
    "Cuba": "Havana", "Australia": "Canberra",
}  # fmt: skip

OPPOSITES = (
    ("hot", "cold"), ("big", "small"), ("up", "down"), ("day", "night"), ("happy", "sad"),
    ("fast", "slow"), ("open", "closed"), ("old", "young"), ("full", "empty"), ("hard", "soft"),
    ("high", "low"), ("long", "short"), ("light", "dark"), ("rich", "poor"), ("wet", "dry"),
    ("left", "right"), ("black", "white"), ("good", "bad"), ("loud", "quiet"), ("near", "far"),
    ("strong", "weak"), ("early", "late"), ("thick", "thin"), ("clean", "dirty"),
)  # fmt: skip

# Question -> (full answer, the same in one word).
FACTS = {
    "What do bees make?": ("Bees make honey.", "Honey."),
    "What do cows eat?": ("Cows eat grass.", "Grass."),
    "What do fish live in?": ("Fish live in water.", "Water."),
    "Where do birds sleep?": ("Birds sleep in nests.", "Nests."),
    "How many legs does a spider have?": ("A spider has eight legs.", "Eight."),
    "How many legs does a dog have?": ("A dog has four legs.", "Four."),
    "How many days are in a week?": ("A week has seven days.", "Seven."),
    "How many months are in a year?": ("A year has twelve months.", "Twelve."),
    "How many minutes are in an hour?": ("An hour has sixty minutes.", "Sixty."),
    "What colour is the sky?": ("The sky is blue.", "Blue."),
    "What colour is grass?": ("Grass is green.", "Green."),
    "What colour is snow?": ("Snow is white.", "White."),
    "What colour is a banana?": ("A banana is yellow.", "Yellow."),
    "What colour is the night?": ("The night is black.", "Black."),
    "What does a cow say?": ("A cow says moo.", "Moo."),
    "What does a cat say?": ("A cat says meow.", "Meow."),
    "What does a dog say?": ("A dog says woof.", "Woof."),
    "What does a duck say?": ("A duck says quack.", "Quack."),
    "What does a sheep say?": ("A sheep says baa.", "Baa."),
    "What is ice made of?": ("Ice is made of water.", "Water."),
    "What is bread made of?": ("Bread is made of flour and water.", "Flour."),
    "What shines at night?": ("The moon shines at night.", "Moon."),
    "What shines by day?": ("The sun shines by day.", "Sun."),
    "What falls from clouds?": ("Rain falls from clouds.", "Rain."),
    "What day comes after Monday?": ("Tuesday comes after Monday.", "Tuesday."),
    "What day comes after Friday?": ("Saturday comes after Friday.", "Saturday."),
    "What season comes after winter?": ("Spring comes after winter.", "Spring."),
    "What is a baby dog called?": ("A baby dog is called a puppy.", "Puppy."),
    "What is a baby cat called?": ("A baby cat is called a kitten.", "Kitten."),
    "Which animal is the biggest?": ("The blue whale is the biggest animal.", "Whale."),
}

LISTS = {
    "animals": ("fox", "bear", "owl", "cat", "dog", "frog", "duck", "goat"),
    "colours": ("red", "blue", "green", "yellow", "white", "black", "brown", "pink"),
    "fruits": ("apple", "pear", "banana", "cherry", "lemon", "plum", "peach", "grape"),
}
LARGEST_ADDEND = 6
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

GREETINGS = {
    "Hello": "Hello! How can I help you?",
    "Hi": "Hi! What can I do for you?",
    "Say hello": "Hello!",
    "Hey": "Hey! What would you like to hear?",
    "Good morning": "Good morning! Did you sleep well?",
    "Good evening": "Good evening! Would you like a story?",
    "How are you?": "I am fine, thank you. How are you?",
    "Who are you?": "I am a very small language model. I know stories and a few facts.",
    "What is your name?": "I have no name. I am a very small language model.",
    "What can you do?": "I can tell stories, name capitals and opposites, and add small numbers.",
    "Thank you": "You are welcome!",
    "Thanks": "You are welcome!",
    "Goodbye": "Goodbye! Come back soon.",
    "Good night": "Good night! Sleep well.",
}

# Questions that have no answer in the corpus. ``{x}`` takes a word made up from syllables or one
# of UNKNOWN_TOPICS, so that a model learns the shape of "not one of mine", not a list.
UNKNOWN_QUESTIONS = (
    "Who was {x}?", "Who invented the {x}?", "When was the {x} built?", "What is {x}?",
    "What is the capital of {x}?", "How do I repair a {x}?", "Why is the {x} so important?",
    "Explain {x} to me.", "What do you think about {x}?", "How much does a {x} cost?",
    "Where can I buy a {x}?", "Write a program about {x}.", "Who won the {x} last year?",
    "What is the opposite of {x}?", "How far is it to {x}?", "Which {x} is the best?",
    "How old is {x}?", "Translate {x} into French.", "What will the {x} be tomorrow?",
    "Can you help me with my {x}?",
)  # fmt: skip
UNKNOWN_TOPICS = (
    "gravity", "history", "music", "physics", "internet", "democracy", "football", "weather",
    "quantum computer", "tax", "car", "phone", "medicine", "Shakespeare", "Einstein",
    "president", "money", "chess", "philosophy", "stock market", "war", "art", "biology",
    "chemistry", "Napoleon", "election", "homework", "recipe", "Python", "software", "novel",
)  # fmt: skip
SYLLABLES = (
    "ba", "be", "do", "fi", "ga", "ka", "lo", "mu", "na", "or", "pe", "ra", "si", "ta", "un",
    "vi", "wo", "xa", "ya", "zo", "land", "stan", "mer", "kin", "dal", "ith",
)  # fmt: skip
