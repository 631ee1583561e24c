"""Hygiene: the questions that must not be trained on, found before anything is rolled out (`clean_questions`).

Every drop has a reason, and reasons are counted. `faults` does the same for pairs.
"""

import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from rensa import RMinHash, RMinHashLSH

from notewriter.artifacts.statistics import Hygiene, Overlap
from notewriter.datasets import BENCHMARKS, load_questions
from notewriter.ground import jsonl
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.text import bare_words, is_character, normalise

NEAR = 0.7
"""The weighted Jaccard similarity from which two questions with a common gold answer are near-duplicates."""

HASHES, BANDS = 240, 40
"""MinHash values per question, and the bands of the index: similarity 0.7 is found with probability 0.99."""

NGRAM = 8
"""Consecutive words that two questions do not share by chance if one of them is rare.

In scripts without spaces twice as many characters.
"""

FEWEST = 20
"""The number of lengths needed to know which are usual."""

SAME = "the same question is there already"
ALIKE = "nearly the same question is there already"
SAME_EVALUATION = "the question is in an evaluation file"
ALIKE_EVALUATION = "nearly the same question is in an evaluation file"
SHARED_WORDS = f"{NGRAM} words in a row, one of them rare, are in an evaluation question"
SHARED_PASSAGES = "its supporting passages hold all those of an evaluation question"
UNUSUAL_QUESTION = "the question's length is far from the others'"


class DroppedQuestion(NamedTuple):
    """A question that is left out, why, and the question that it overlaps with (empty and None for its length)."""

    question: Question
    reason: str
    other_id: str = ""
    evaluation_file: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """A line of dropped_questions.jsonl."""
        return {
            "question_id": self.question.id,
            "question": self.question.question,
            "reason": self.reason,
            "other_id": self.other_id,
            "evaluation_file": self.evaluation_file,
        }


class Seen(NamedTuple):
    """A question that others must not repeat: an evaluation question, or (without a file) a training question."""

    question: Question
    evaluation_file: str | None


def load_evaluation(eval_files: Mapping[str, str]) -> list[Seen]:
    """The questions of evaluation files, given as path -> dataset (a key of `BENCHMARKS`).

    Raises:
        UserError: an unknown dataset, or the errors of `load_questions`.
    """
    for path, dataset in eval_files.items():
        choose(f"dataset of {path} in eval_files", dataset, BENCHMARKS)
    return [Seen(question, path) for path, dataset in eval_files.items() for question in load_questions(dataset, path)]


def clean_questions(
    questions: Sequence[Question], evaluation: Sequence[Seen] = ()
) -> tuple[list[Question], list[DroppedQuestion]]:
    """Separate the questions to train on from those to leave out; both keep their order, the first of duplicates stays.

    A question is left out for the first of these reasons:

    - its words, ignoring case and punctuation, are those of an earlier question or of an evaluation question;
    - its words are nearly those of such a question, and a gold answer is the same. Words are weighted by their rarity,
      so that two questions of one template about two people are not near-duplicates (see `_Known`);
    - it shares eight consecutive words (16 characters in scripts without spaces) with an evaluation question and one of
      them is rare, that is, in at most one question in a hundred: the wording of a template that thousands of questions
      share is no overlap;
    - its supporting passages include all those of an evaluation question, by their ids (in the benchmarks' own formats,
      title and digest of the text): it would train on the evidence of that answer;
    - its number of words is far from the others' (`usual_lengths`).

    Raises:
        UserError: no question is left.
    """
    kept, drops = _separate(questions, evaluation)
    if not kept:
        counts = Counter(drop.reason for drop in drops).items()
        reasons = ", ".join(f"{count} times {reason}" for reason, count in counts)
        raise UserError(f"no question is left to train on: {reasons}; give other questions, or other eval_files")
    return kept, drops


def overlapping(questions: Sequence[Question], evaluation: Sequence[Seen]) -> list[DroppedQuestion]:
    """The questions that overlap with evaluation questions, for the reasons of `clean_questions`."""
    _, drops = _separate(questions, evaluation, each_other=False)
    return [drop for drop in drops if drop.evaluation_file]


def _separate(
    questions: Sequence[Question], evaluation: Sequence[Seen], each_other: bool = True
) -> tuple[list[Question], list[DroppedQuestion]]:
    """As `clean_questions`, with no complaint; without `each_other`, questions are not compared among themselves."""
    known = _Known([question.question for question in (*questions, *(seen.question for seen in evaluation))])
    for seen in evaluation:
        known.add(seen)
    shortest, longest = usual_lengths([len(bare_words(question.question)) for question in questions])
    kept, drops = [], []
    for question in questions:
        if met := known.met(question):
            reason, other = met
            drops.append(DroppedQuestion(question, reason, other.question.id, other.evaluation_file))
        elif not shortest <= len(bare_words(question.question)) <= longest:
            drops.append(DroppedQuestion(question, UNUSUAL_QUESTION))
        else:
            if each_other:
                known.add(Seen(question, None))
            kept.append(question)
    return kept, drops


class _Known:
    """Questions that others must not repeat, indexed by wordings, evidence and similarity.

    `texts` are those of all questions at hand, which tell how rare a word is.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._frequency = Counter(word for text in texts for word in set(bare_words(text)))
        self._total, self._rare = len(texts), max(5, len(texts) / 100)
        self._all: list[Seen] = []
        self._exact: dict[tuple[str, ...], Seen] = {}
        self._alike = RMinHashLSH(threshold=NEAR, num_perm=HASHES, num_bands=BANDS)
        self._by_ngram: dict[tuple[str, ...], Seen] = {}
        self._by_passage: dict[str, list[Seen]] = {}

    def add(self, seen: Seen) -> None:
        """Add a question; of training questions neither single wordings nor evidence count."""
        question = seen.question
        self._exact.setdefault(bare_words(question.question), seen)
        self._alike.insert(len(self._all), _minhash(self._weighted(question)))
        self._all.append(seen)
        if seen.evaluation_file is not None:
            self._by_ngram |= dict.fromkeys(self._ngrams(question), seen)
            for passage in question.supporting_ids[:1]:
                self._by_passage.setdefault(passage, []).append(seen)

    def met(self, question: Question) -> tuple[str, Seen] | None:
        """The first reason of `clean_questions` for which a question is left out, and the one that it repeats."""
        if other := self._exact.get(bare_words(question.question)):
            return SAME_EVALUATION if other.evaluation_file else SAME, other
        if other := self._most_alike(question):
            return ALIKE_EVALUATION if other.evaluation_file else ALIKE, other
        if other := next(filter(None, map(self._by_ngram.get, self._ngrams(question))), None):
            return SHARED_WORDS, other
        passages = set(question.supporting_ids)
        for other in (seen for passage in question.supporting_ids for seen in self._by_passage.get(passage, ())):
            if passages.issuperset(other.question.supporting_ids):
                return SHARED_PASSAGES, other
        return None

    def _weighted(self, question: Question) -> set[str]:
        """The words of a question, each repeated by its inverse document frequency (rounded, at least 1).

        The Jaccard similarity of two such sets is the words' weighted one, which MinHash estimates: names count, the
        wording of a template hardly does.
        """
        words = set(bare_words(question.question))
        copies = {word: max(1, round(math.log(self._total / self._frequency[word]))) for word in words}
        return {f"{word} {copy}" for word, many in copies.items() for copy in range(many)}

    def _most_alike(self, question: Question) -> Seen | None:
        """The near-duplicate, evaluation questions first; hash collisions are filtered out here."""
        weighted, answers = self._weighted(question), {normalise(answer) for answer in question.answers}
        duplicates = []
        for candidate in (self._all[key] for key in self._alike.query(_minhash(weighted))):
            other = self._weighted(candidate.question)
            similarity = len(weighted & other) / len(weighted | other) if weighted | other else 0.0
            if similarity >= NEAR and answers & {normalise(answer) for answer in candidate.question.answers}:
                duplicates.append((candidate.evaluation_file is None, -similarity, candidate.question.id, candidate))
        return min(duplicates, key=lambda each: each[:3])[3] if duplicates else None

    def _ngrams(self, question: Question) -> Iterator[tuple[str, ...]]:
        """The wordings of `NGRAM` words in a row, one of them rare; a character without spaces is half a word."""
        words = bare_words(question.question)
        lengths = [0.0, *accumulate(0.5 if is_character(word) else 1.0 for word in words)]
        for start, before in enumerate(lengths):
            end = bisect_left(lengths, before + NGRAM)
            if end < len(lengths) and min(self._frequency[word] for word in words[start:end]) <= self._rare:
                yield words[start:end]


def write_drops(folder: Path, drops: Iterable[DroppedQuestion]) -> None:
    """Write dropped_questions.jsonl into a folder.

    Raises:
        UserError: it cannot be written.
    """
    jsonl.write(folder / "dropped_questions.jsonl", (drop.to_dict() for drop in drops))


def hygiene_statistics(drops: Sequence[DroppedQuestion], evaluation: Sequence[Seen]) -> Hygiene:
    """The number of questions left out for each reason, and the overlap with each evaluation file.

    A drop names one evaluation question, so a question that overlaps with several files counts for one of them.
    """
    files: dict[str, Overlap] = {}
    for path, count in Counter(seen.evaluation_file for seen in evaluation).items():
        ours = [drop for drop in drops if drop.evaluation_file == path]
        files[str(path)] = {
            "questions": count,
            "training_questions_dropped": len(ours),
            "evaluation_questions_met": len({drop.other_id for drop in ours}),
        }
    return {
        "questions_dropped": dict(sorted(Counter(drop.reason for drop in drops).items())),
        "evaluation_files": files,
    }


def _minhash(items: set[str]) -> RMinHash:
    minhash = RMinHash(num_perm=HASHES, seed=0)
    # Sorted, since the order of a set differs between processes.
    minhash.update(sorted(items))
    return minhash


def usual_lengths(lengths: Sequence[int]) -> tuple[float, float]:
    """The shortest and the longest length that are not far from the others.

    Tukey's outer fences (three interquartile ranges beyond the quartiles) on the logarithms of the lengths. Quartiles
    closer than a factor of 1.5 are treated as that far apart. Fewer than 20 lengths have no bounds.
    """
    if len(lengths) < FEWEST:
        return 0.0, math.inf
    logarithms = [math.log(max(length, 1)) for length in lengths]
    lower, _, upper = statistics.quantiles(logarithms, n=4, method="inclusive")
    reach = 3 * max(upper - lower, math.log(1.5))
    return math.exp(lower - reach), math.exp(upper + reach)
