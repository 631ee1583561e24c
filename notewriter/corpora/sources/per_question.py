"""A corpus for each question: its own paragraphs and random ones of other questions.

ReaRAG (section 4.1) enlarges the corpus of each question to 48,000 to 58,000 tokens with distractors of other
questions, or with their gold documents where there are not enough.

RULER's QA task (Hsieh et al. 2024) hides a question's paragraphs among random ones up to a given length, in
random order. RULER-HotpotQA is what MemAgent is evaluated on, from 7,000 tokens on, doubled each time.
The authors' code of the latter fixes the number of paragraphs instead (50, 100, ... 3,200); that of both draws the gold
paragraphs of other questions as well, and so does this with `lengths`.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from annotated_types import Interval

from notewriter.corpora import reading
from notewriter.corpora.source import Source
from notewriter.corpora.sources import ircot
from notewriter.datasets import BENCHMARKS, load_questions
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.records import Passage

NAME = "per-question"
"""The source's name, beside those in `SOURCES`."""

FILE = "per_question.jsonl"

SHORTEST = 97
"""The least length of a corpus in percent of the given one, if there are enough paragraphs."""


@dataclass
class PerQuestionArguments:
    """Corpora of single questions."""

    min_tokens: Annotated[int, Interval(ge=1)] = option(
        48_000, "minimum number of tokens in a question's corpus (--source per-question)"
    )
    max_tokens: Annotated[int, Interval(ge=1)] = option(
        58_000, "maximum number of tokens in a question's corpus, unless its own paragraphs have more"
    )
    seed: int = option(0, "seed of the random paragraphs of each question")
    lengths: list[int] | None = option(
        None,
        "instead of the bounds, these numbers of tokens, a file for each (RULER-HotpotQA: 7000 14000 28000 "
        "56000 112000 224000 448000)",
    )
    first: Annotated[int, Interval(ge=1)] | None = option(
        None, "number of questions, from the first on, that get a corpus; the others only lend their paragraphs"
    )


class QuestionCorpus(TypedDict):
    """A line of `per_question.jsonl`: the ids of a question's passages, in random order, and their tokens.

    The first `own` of them before the shuffle were the question's own.
    """

    question_id: str
    passage_ids: list[str]
    own: int
    tokens: int


def source(dataset: str) -> Source:
    """The paragraphs of all questions of a benchmark.

    Raises:
        UserError: the benchmark is unknown or its questions have no paragraphs beside them.
    """
    benchmark = choose("dataset", dataset, BENCHMARKS)
    if benchmark.load_contexts is None:
        names = ", ".join(name for name, each in BENCHMARKS.items() if each.load_contexts)
        raise UserError(f"dataset: {dataset} has no paragraphs beside its questions; choose one of: {names}")
    return Source(
        title=f"{benchmark.title}, a corpus for each question",
        files=benchmark.source or benchmark.title,
        inputs=lambda paths: reading.expand(paths, "*.json*"),
        records=lambda name, path: ircot.contexts(dataset, name, path),
        parse=ircot.paragraphs,
        has_repeats=True,
    )


def gold_ids(dataset: str, paths: Collection[Path]) -> set[str]:
    """The supporting passages of all questions, or else their paragraphs with a supporting fact (IIRC).

    Empty for files without annotation, such as those of "Lost in the Middle".
    """
    gold: set[str] = set()
    contexts = choose("dataset", dataset, BENCHMARKS).load_contexts
    for path in paths:
        questions = {question.id: question for question in load_questions(dataset, path)}
        supporting = {id for question in questions.values() for id in question.supporting_ids}
        if contexts and not supporting and any(question.supporting_facts for question in questions.values()):
            supporting = {
                passage.id
                for id, passages in contexts(path)
                for passage in passages
                if any(fact in passage.text for fact in questions[id].supporting_facts)
            }
        gold |= supporting
    return gold


@dataclass(frozen=True)
class Size:
    """A file of corpora, the bounds of their tokens, and what their random paragraphs follow from."""

    file: str
    low: int
    high: int
    seed: str


def sizes(arguments: PerQuestionArguments) -> list[Size]:
    """The files to write.

    Raises:
        UserError: the bounds are in the wrong order, or a length is not positive.
    """
    low, high = arguments.min_tokens, arguments.max_tokens
    if arguments.lengths is None:
        if low > high:
            raise UserError(f"min_tokens: {low} is more than max_tokens {high}; swap them")
        return [Size(FILE, low, high, str(arguments.seed))]
    if not arguments.lengths or min(arguments.lengths) < 1:
        raise UserError(f"lengths: {arguments.lengths} must be numbers of tokens above 0")
    stem, _, suffix = FILE.partition(".")
    return [
        # The last paragraph hardly ever ends exactly there.
        Size(f"{stem}_{length}.{suffix}", length * SHORTEST // 100, length, f"{arguments.seed} {length}")
        for length in dict.fromkeys(arguments.lengths)
    ]


def tokens_of(
    contexts: Callable[[], Iterator[tuple[str, list[Passage]]]], count_tokens: Callable[[Passage], int]
) -> dict[str, int]:
    """The tokens of every paragraph by id."""
    tokens: dict[str, int] = {}
    for _, passages in contexts():
        for passage in passages:
            if passage.id not in tokens:
                tokens[passage.id] = count_tokens(passage)
    return tokens


def corpora(
    contexts: Iterable[tuple[str, list[Passage]]],
    tokens: dict[str, int],
    gold: Collection[str],
    size: Size,
) -> Iterator[QuestionCorpus]:
    """A corpus for each question, in file order; ids and token counts are kept in memory, texts are not.

    What a question gets depends on the seed, its id and the pool, not on the questions before it.

    Args:
        contexts: each question's id and own paragraphs.
        tokens: the tokens of every paragraph (`tokens_of`).
        gold: paragraphs that are drawn only when the others have run out.
        size: bounds and seed.

    Raises:
        UserError: a question occurs twice.
    """
    seen = set[str]()
    pools = [[id for id in tokens if id not in gold], [id for id in tokens if id in gold]]
    for question_id, passages in contexts:
        if question_id in seen:
            raise UserError(f"question {question_id!r} occurs twice in the files of --path; leave out one of them")
        seen.add(question_id)
        generator = random.Random(f"{size.seed} {question_id}")
        chosen = dict.fromkeys(passage.id for passage in passages)
        own = len(chosen)
        total = sum(tokens[id] for id in chosen)
        target = generator.randint(size.low, size.high)
        for id in (id for pool in pools for id in _shuffled(pool, generator)):
            if total >= target:
                break
            if id not in chosen and total + tokens[id] <= size.high:
                chosen[id] = None
                total += tokens[id]
        ids = list(chosen)
        generator.shuffle(ids)
        yield {"question_id": question_id, "passage_ids": ids, "own": own, "tokens": total}


def _shuffled(pool: list[str], generator: random.Random) -> Iterator[str]:
    """The pool in random order; only as much of it is shuffled as is asked for."""
    moved: dict[int, int] = {}
    for position in range(len(pool)):
        other = generator.randrange(position, len(pool))
        yield pool[moved.get(other, other)]
        moved[other] = moved.get(position, position)
