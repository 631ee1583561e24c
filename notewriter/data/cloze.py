"""`notewriter cloze`: questions made of a corpus's own words, whose evidence is known, to learn from before real ones.

    notewriter cloze --path corpus.jsonl --output cloze.jsonl --questions 4000
    notewriter gold --dataset jsonl --path cloze.jsonl ...

Few questions have gold evidence, and from few a small model learns the usual place of evidence, not its relation to the
question. Cloze questions can be made in any number: a question has some words of two sentences, as in the inverse cloze
task (Lee et al., 2019), and these are its evidence. The sentences are of two passages: the first names the title of the
second, or they have two words in common. If passages are sections of documents (manuals), a question names the document
and some words of one sentence, and its answer is another word of it. Nobody would ask such questions, but they relate
to their evidence as real ones do. The corpus is held in memory.
"""

import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from annotated_types import Interval

from notewriter.datasets.own import load_corpus
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import bare, joined, sentences_in, tokens, words_in

COMMON = 0.05
"""The largest share of passages with a telling word; two passages always may have it."""

SHORTEST = 5
"""Words of the shortest sentence that can be evidence."""

LONGEST_NAME = 6
"""Words of the longest title that is looked for in sentences; the shortest has two."""

FEWEST = 4
"""The least number of telling words in a sentence for a question on it."""

PROSE = re.compile(r"[^#|`>\s].*[.!?\u3002\uff01\uff1f\u0964\u06d4\u061f\u104b\u17d4\u1362\u0589]")
"""A sentence that is neither a heading nor code nor a row of a table."""

TRIES = 100
"""The number of attempts at a question before the corpus counts as too small."""

LINKED = ("What is the", "Who was the", "When was the", "Where was the", "What", "Which")
TOLD = ("What does {0} say of {1}?", "In {0}, what is said about {1}?", "How does {0} put {1}?")
ALIKE = ("Which {0} {1}, {2} or {3}?", "Are {2} and {3} both {0} {1}?", "Which {0} has the {1}, {2} or {3}?")

WARNING = (
    "they share words with their evidence, so that scores on them are too high; use them for training, or to try "
    "things out"
)


@dataclass
class ClozeArguments:
    """The options of `notewriter cloze`: the corpus, and the number of questions."""

    path: str = field(metadata={"help": "a corpus: JSON Lines of id, title and text, as `notewriter corpus` writes it"})
    output: str = field(metadata={"help": "the file of questions to write, for `--dataset jsonl`"})
    questions: Annotated[int, Interval(ge=0)] = option(4000, "number of questions")
    linked: Annotated[float, Interval(ge=0, le=1)] = option(
        0.65,
        "share of questions that link a passage to another one that it names; all other questions compare two passages",
    )
    seed: int = option(0, "seed of the draw")


def main(argv: list[str]) -> None:
    """Write questions; the same corpus, options and seed give the same ones."""
    (arguments,) = parse([ClozeArguments], argv, prog="notewriter cloze", description=__doc__)
    if Path(arguments.path).resolve() == Path(arguments.output).resolve():
        raise UserError(f"{arguments.output}: the questions would replace the corpus; choose another --output")
    corpus = Sentences(load_corpus(Path(arguments.path)))
    rng = random.Random(f"{arguments.seed} cloze")
    questions: dict[str, Question] = {}
    for _ in range(TRIES * arguments.questions if corpus.by_passage else 0):
        if len(questions) == arguments.questions:
            break
        make = told if corpus.of_sections else linked if rng.random() < arguments.linked else alike
        if question := make(corpus, rng, f"cloze-{len(questions)}"):
            questions.setdefault(question.question, question)
    if len(questions) < arguments.questions:
        raise UserError(f"{arguments.path}: yields only {len(questions)} questions; lower --questions")
    jsonl.write(arguments.output, (asdict(question) for question in questions.values()))
    warning = f"; {WARNING}" if questions else ""
    sys.stdout.write(f"{arguments.output}: {len(questions)} questions{warning}\n")


class Sentence(NamedTuple):
    """A sentence of a passage, and its words."""

    passage: Passage
    text: str
    words: tuple[str, ...]


class Sentences:
    """The sentences of a corpus by passage, by word and by the title that they name."""

    def __init__(self, passages: Iterator[Passage]) -> None:
        self.by_passage: list[list[Sentence]] = []
        self.by_word: dict[str, list[Sentence]] = defaultdict(list)
        self.by_title: dict[tuple[str, ...], list[Sentence]] = {}
        for passage in passages:
            texts = [text for text in sentences_in(passage.text) if len(words_in(text)) >= SHORTEST]
            sentences = [Sentence(passage, text, tuple(tokens(text))) for text in texts]
            if sentences:
                self.by_passage.append(sentences)
                self.by_title.setdefault(tuple(tokens(name_of(passage))), sentences)
            for sentence in sentences:
                for word in dict.fromkeys(sentence.words):
                    self.by_word[word].append(sentence)
        documents = Counter(document_of(sentences[0].passage) for sentences in self.by_passage)
        self.of_sections = 2 * sum(count for count in documents.values() if count > 1) > len(self.by_passage)
        self.repeated = {
            text
            for text, count in Counter(each.text for sentences in self.by_passage for each in sentences).items()
            if count > 1
        }
        most = max(2, COMMON * len(self.by_passage))
        self._common = {word for word, found in self.by_word.items() if len({each.passage.id for each in found}) > most}

    def telling(self, sentence: Sentence, *known: str) -> list[str]:
        """The words of a sentence, as it spells them, that are neither common nor in a `known` text."""
        without = self._common.union(*map(tokens, known))
        words = map(bare, words_in(sentence.text))
        return [word for word in words if tokens(word) and not without.issuperset(tokens(word))]

    def named_in(self, sentence: Sentence) -> list[list[Sentence]]:
        """The sentences of every other passage whose title, of two words or more, stands in a sentence."""
        words = sentence.words
        spans = (
            words[start:end]
            for start in range(len(words))
            for end in range(start + 2, min(start + LONGEST_NAME, len(words)) + 1)
        )
        found = [self.by_title[span] for span in spans if span in self.by_title]
        return [each for each in found if each[0].passage.id != sentence.passage.id]


def told(corpus: Sentences, rng: random.Random, name: str) -> Question | None:
    """A question on one sentence of a document: some of its words, with another of its words as the answer.

    None where no other words than the answer are left, or other passages say the same.
    """
    first = rng.choice(rng.choice(corpus.by_passage))
    title = document_of(first.passage)
    words = corpus.telling(first, title)
    if not title or len(set(words)) < FEWEST or first.text in corpus.repeated or not PROSE.fullmatch(first.text):
        return None
    # What is asked for in a manual is a number or a name more often than a word.
    answer = rng.choice([word for word in words if not word.isalpha()] or words)
    asked = _some([word for word in words if word != answer], rng, least=2)
    question = rng.choice(TOLD).format(title, joined(asked))
    return Question(name, question, (answer,), supporting_ids=(first.passage.id,), supporting_facts=(first.text,))


def linked(corpus: Sentences, rng: random.Random, name: str) -> Question | None:
    """A question on two linked passages: some words of a sentence of each; the answer is the second one's title."""
    first = rng.choice(rng.choice(corpus.by_passage))
    if not (others := corpus.named_in(first)):
        return None
    other = rng.choice(others)
    # The first sentence of an article says what it is about, and is asked about most.
    second = other[0] if rng.random() < 0.5 else rng.choice(other)
    title, name_of_other = name_of(first.passage), name_of(second.passage)
    asked = _some(corpus.telling(second, name_of_other), rng)
    through = _some(corpus.telling(first, title, name_of_other), rng)
    if not (asked and through):
        return None
    question = f"{rng.choice(LINKED)} {joined(asked)} of the {joined(through)} of {title}?"
    return _question(name, question, name_of_other, first, second)


def alike(corpus: Sentences, rng: random.Random, name: str) -> Question | None:
    """A question that compares two passages by two words that a sentence of each has.

    Both have them, so that "which" has no answer but a name drawn of the two: what there is to learn is the evidence.
    """
    sentences = rng.choice(corpus.by_passage)
    first = sentences[0] if rng.random() < 0.5 else rng.choice(sentences)
    words = corpus.telling(first, name_of(first.passage))
    if len(words) < 2:
        return None
    shared = rng.sample(words, 2)
    (one, *_), (two, *_) = map(tokens, shared)
    if one == two:
        return None
    others = [each for each in corpus.by_word[one] if two in each.words and each.passage != first.passage]
    if not others:
        return None
    second = rng.choice(others)
    names = [name_of(first.passage), name_of(second.passage)]
    rng.shuffle(names)
    asked = rng.choice(ALIKE)
    return _question(name, asked.format(*shared, *names), "yes" if asked.startswith("Are") else names[0], first, second)


def name_of(passage: Passage) -> str:
    """A passage's title without the disambiguation in parentheses."""
    return passage.title.partition(" (")[0]


def document_of(passage: Passage) -> str:
    """The title of a passage's document, without those of its sections and the disambiguation in parentheses."""
    return re.sub(r"\s*\([^()]*\)", "", passage.title.partition(" > ")[0]).strip()


def _some(words: Sequence[str], rng: random.Random, least: int = 1) -> Sequence[str]:
    """A run of `least` words that follow each other, or one or two more."""
    count = rng.randint(least, least + 2)
    start = rng.randrange(max(1, len(words) - count + 1))
    return words[start : start + count]


def _question(name: str, question: str, answer: str, first: Sentence, second: Sentence) -> Question | None:
    """None where a passage has no name or both have the same one, or the same sentence."""
    names = {name_of(first.passage), name_of(second.passage)}
    if "" in names or len(names) < 2 or first.text == second.text:
        return None
    ids = (first.passage.id, second.passage.id)
    return Question(name, question, (answer,), supporting_ids=ids, supporting_facts=(first.text, second.text))
