"""Hygiene: which questions must not be trained on; checked before anything is rolled out (`clean_questions`).

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
        if not isinstance(dataset, str):
            raise UserError(
                f"eval_files: {path}: {dataset!r} is not a dataset; give PATH: one of {', '.join(BENCHMARKS)}"
            )
        choose(f"dataset of {path} in eval_files", dataset, BENCHMARKS)
    return [Seen(question, path) for path, dataset in eval_files.items() for question in load_questions(dataset, path)]


def clean_questions(
    questions: Sequence[Question], evaluation: Sequence[Seen] = ()
) -> tuple[list[Question], list[DroppedQuestion]]:
    """Separate the questions to train on from those to leave out; both keep their order, the first of duplicates stays.

    A question is left out for the first of these reasons:

    - its words, ignoring case and punctuation, are those of an earlier question or of an evaluation question;
    - its words are nearly those of such a question, and a gold answer is the same. Words are weighted by their rarity,
      so that two questions of one template about two people are not near-duplicates (see `_weighted`);
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
    texts = [question.question for question in questions] + [seen.question.question for seen in evaluation]
    frequency = Counter(word for text in texts for word in set(bare_words(text)))
    rare = max(5, len(texts) / 100)
    usual = usual_lengths([len(bare_words(question.question)) for question in questions])
    indexed = list(evaluation)
    exact: dict[tuple[str, ...], Seen] = {}
    alike = RMinHashLSH(threshold=NEAR, num_perm=HASHES, num_bands=BANDS)
    for number, seen in enumerate(evaluation):
        exact.setdefault(bare_words(seen.question.question), seen)
        alike.insert(number, _minhash(_weighted(seen.question, frequency, len(texts))))
    ngrams = {ngram: seen for seen in evaluation for ngram in _ngrams(seen.question, frequency, rare)}
    by_passage: dict[str, list[Seen]] = {}
    for seen in evaluation:
        for passage in seen.question.supporting_ids[:1]:
            by_passage.setdefault(passage, []).append(seen)

    kept, drops = [], []
    for question in questions:
        weighted = _weighted(question, frequency, len(texts))
        minhash = _minhash(weighted)
        if other := exact.get(bare_words(question.question)):
            drop = DroppedQuestion(question, SAME_EVALUATION if other.evaluation_file else SAME, *_name(other))
        elif other := _most_alike(
            question, weighted, [indexed[key] for key in alike.query(minhash)], frequency, len(texts)
        ):
            drop = DroppedQuestion(question, ALIKE_EVALUATION if other.evaluation_file else ALIKE, *_name(other))
        elif other := next((ngrams[ngram] for ngram in _ngrams(question, frequency, rare) if ngram in ngrams), None):
            drop = DroppedQuestion(question, SHARED_WORDS, *_name(other))
        elif other := _same_evidence(question, by_passage):
            drop = DroppedQuestion(question, SHARED_PASSAGES, *_name(other))
        elif not usual[0] <= len(bare_words(question.question)) <= usual[1]:
            drop = DroppedQuestion(question, UNUSUAL_QUESTION)
        else:
            if each_other:
                exact[bare_words(question.question)] = Seen(question, None)
                alike.insert(len(indexed), minhash)
                indexed.append(Seen(question, None))
            kept.append(question)
            continue
        drops.append(drop)
    return kept, drops


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


def _name(other: Seen) -> tuple[str, str | None]:
    return other.question.id, other.evaluation_file


def _weighted(question: Question, frequency: Mapping[str, int], total: int) -> set[str]:
    """The words of a question, each repeated by its inverse document frequency (rounded, at least 1).

    The Jaccard similarity of two such sets is the words' weighted one, which MinHash estimates: names count, the
    wording of a template hardly does.
    """
    words = set(bare_words(question.question))
    return {f"{word} {copy}" for word in words for copy in range(max(1, round(math.log(total / frequency[word]))))}


def _minhash(items: set[str]) -> RMinHash:
    minhash = RMinHash(num_perm=HASHES, seed=0)
    # Sorted, since the order of a set differs between processes.
    minhash.update(sorted(items))
    return minhash


def _most_alike(
    question: Question, weighted: set[str], candidates: Iterable[Seen], frequency: Mapping[str, int], total: int
) -> Seen | None:
    """The near-duplicate among the candidates, evaluation questions first; hash collisions are filtered out here."""
    answers = {normalise(answer) for answer in question.answers}
    duplicates = []
    for candidate in candidates:
        other = _weighted(candidate.question, frequency, total)
        similarity = len(weighted & other) / len(weighted | other) if weighted | other else 0.0
        if similarity >= NEAR and answers & {normalise(answer) for answer in candidate.question.answers}:
            duplicates.append((candidate.evaluation_file is None, -similarity, candidate.question.id, candidate))
    return min(duplicates, key=lambda each: each[:3])[3] if duplicates else None


def _ngrams(question: Question, frequency: Mapping[str, int], rare: float) -> Iterator[tuple[str, ...]]:
    words = bare_words(question.question)
    lengths = [0.0, *accumulate(0.5 if is_character(word) else 1.0 for word in words)]
    for start, before in enumerate(lengths):
        end = bisect_left(lengths, before + NGRAM)
        if end < len(lengths) and min(frequency[word] for word in words[start:end]) <= rare:
            yield words[start:end]


def _same_evidence(question: Question, by_passage: Mapping[str, Sequence[Seen]]) -> Seen | None:
    passages = set(question.supporting_ids)
    for passage in question.supporting_ids:
        for seen in by_passage.get(passage, ()):
            if passages.issuperset(seen.question.supporting_ids):
                return seen
    return None


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
