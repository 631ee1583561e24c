"""Judgements: the prompts to a judge model about a question of a finished run, and the scores from its reply.

A judgement is an async function of what was `Answered`; `JUDGEMENTS` contains them by name. What was judged of a run is
merged into its predictions and metrics.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from notewriter.artifacts.judgements import FOLDER, Judgement, read_judgements
from notewriter.artifacts.predictions import Prediction
from notewriter.evaluation.metrics.metric import Metric
from notewriter.ground.errors import UserError
from notewriter.rollouts.method import Stage
from notewriter.rollouts.parsing import object_schema, parse_correct, parse_decision, parse_evidence, parse_ratings

ANSWER = Stage("judge/answer", "judge")
GRADED_ANSWER = Stage("judge/graded_answer", "judge")
EXPLAINED_ANSWER = Stage("judge/explained_answer", "judge")
CHAIN = Stage("judge/chain", "judge")
DENSITY = Stage("judge/density", "judge")


@dataclass(frozen=True)
class Answered:
    """A question with its answer, as a judge sees it.

    Args:
        question: its text.
        golds: its gold answers.
        prediction: the method's answer.
        steps: the method's thoughts, actions and observations (`chain_of`).
        reference: the text the answer was written from (`evidence.reference_of`); None where there is none.
        ask: sends a stage's prompt to the judge's model and returns its reply.
    """

    question: str
    golds: Sequence[str]
    prediction: str
    steps: Sequence[str]
    reference: str | None
    ask: Callable[..., Awaitable[str]]


@dataclass(frozen=True)
class Outcome:
    """A question's scores, or the reason why it has none; `counts` are numbers that belong to the scores."""

    scores: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)


NOT_READABLE = Outcome(reason="judge reply not readable")

CRITERIA = ("efficiency", "redundancy", "coherence")

GRADES = (0.0, 0.5, 1.0)


def _answer(
    stage: Stage, score: str, read: Callable[[str], float | None], **options: Any
) -> Callable[[Answered], Awaitable[Outcome]]:
    """Judge the prediction against the gold answers; `read` reads the reply. A blank one scores 0 without asking.

    One of several golds is enough, even where each answers a different reading of the question (ASQA).
    """

    async def judge(answered: Answered) -> Outcome:
        if not answered.prediction.strip():
            return Outcome({score: 0.0})
        reply = await answered.ask(
            stage, question=answered.question, golds=answered.golds, prediction=answered.prediction, **options
        )
        value = read(reply)
        return NOT_READABLE if value is None else Outcome({score: float(value)})

    return judge


def _grade(reply: str) -> float | None:
    grade = (parse_ratings(reply, ("score",), 1) or {}).get("score")
    return grade if grade in GRADES else None


async def chain(answered: Answered) -> Outcome:
    """`chain_efficiency`, `chain_redundancy`, `chain_coherence`: the quality of the steps, each from 0 to 5.

    5 is always best: a redundancy of 5 means that the chain repeats nothing. The judge gives its reasons before the
    ratings (NotesWriting, section 6, figure 7).
    """
    if not answered.steps:
        return Outcome(reason="no steps")
    ratings_schema = {criterion: {"type": "integer", "enum": list(range(6))} for criterion in CRITERIA}
    schema = object_schema({"reasoning": {"type": "string"}, **ratings_schema})
    reply = await answered.ask(CHAIN, json_schema=schema, question=answered.question, steps=answered.steps)
    ratings = parse_ratings(reply, CRITERIA, 5)
    if ratings is None:
        return NOT_READABLE
    return Outcome({f"chain_{criterion}": rating for criterion, rating in ratings.items()})


async def density(answered: Answered) -> Outcome:
    """`knowledge_density`: the share of the reference text, in tokens, that the judge marks as evidence.

    DeepNote, section 5.3: evidence tokens / reference tokens. In the paper the answering model marks the evidence; use
    it as the judge to reproduce this. Pieces that do not occur verbatim in the text do not count, and no token counts
    twice. Tokens are words and punctuation marks, so no tokenizer is needed.
    """
    if answered.reference is None:
        return Outcome(reason="no reference text")
    if not answered.reference.strip():
        return Outcome(reason="empty reference text")
    schema = object_schema({"evidence": {"type": "array", "items": {"type": "string"}}})
    reply = await answered.ask(DENSITY, json_schema=schema, question=answered.question, reference=answered.reference)
    evidence = parse_evidence(reply)
    if evidence is None:
        return NOT_READABLE
    counts = marked(answered.reference, evidence)
    return Outcome({"knowledge_density": counts["evidence_tokens"] / counts["reference_tokens"]}, counts=counts)


@dataclass(frozen=True)
class JudgementKind:
    """The way of judging a question, and the scores that it yields."""

    judge: Callable[[Answered], Awaitable[Outcome]]
    metrics: tuple[Metric, ...]

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores' names."""
        return tuple(metric.name for metric in self.metrics)


def _rating(name: str, label: str, scale: str) -> Metric:
    return Metric(name, label, f"A judge model's rating of the steps; {scale}.", decimals=1, share=False)


JUDGEMENTS = {
    "answer": JudgementKind(
        _answer(
            ANSWER,
            "judged_accuracy",
            parse_correct,
            json_schema=object_schema({"correct": {"type": "string", "enum": ["yes", "no"]}}),
        ),
        (Metric("judged_accuracy", "Accuracy, by the judge", "Share of predictions that contain a gold answer."),),
    ),
    # ReaRAG's ACC_L. The paper does not print its prompt, but has values such as 28.25 of 200 questions (Table 1), and
    # speaks of a full score (section 4.5).
    "graded_answer": JudgementKind(
        _answer(
            GRADED_ANSWER,
            "graded_accuracy",
            _grade,
            json_schema=object_schema({"score": {"type": "number", "enum": list(GRADES)}}),
        ),
        (
            Metric(
                "graded_accuracy",
                "Accuracy, graded by the judge",
                "Right answers count 1, partly right ones 0.5 (ReaRAG's ACC_L).",
            ),
        ),
    ),
    # NotesWriting's GPT-4 score (figure 6): `Explanation: ...`, then `Decision: TRUE` or `FALSE`.
    "explained_answer": JudgementKind(
        _answer(EXPLAINED_ANSWER, "explained_accuracy", parse_decision),
        (
            Metric(
                "explained_accuracy",
                "Accuracy, by the judge's explained decision",
                "Share of predictions in which a judge model finds a gold answer, after an explanation (NotesWriting).",
            ),
        ),
    ),
    "chain": JudgementKind(
        chain,
        (
            _rating("chain_efficiency", "Efficiency of the chain (0 to 5)", "5 is the best"),
            _rating("chain_redundancy", "Redundancy of the chain (0 to 5; 5: none)", "5 is none at all"),
            _rating("chain_coherence", "Coherence of the chain (0 to 5)", "5 is the best"),
        ),
    ),
    "density": JudgementKind(
        density,
        (Metric("knowledge_density", "Knowledge density", "Share of the note that a judge model marks as evidence."),),
    ),
}

RunJudgements = Mapping[str, Mapping[str, Judgement]]
"""Name of the judgement -> question id -> judgement."""


def read_run_judgements(run: Path) -> RunJudgements:
    """The judgements in a run's folder; empty where none was made.

    Raises:
        UserError: a line is not what `notewriter judge` writes.
    """
    paths = {name: run / FOLDER / f"{name}.jsonl" for name in JUDGEMENTS}
    return {name: read_judgements(path) for name, path in paths.items() if path.exists()}


def with_judgements(prediction: Prediction, judgements: RunJudgements, run: Path) -> Prediction:
    """A prediction with the scores of its judgements in place of those that a judge gave before.

    Raises:
        UserError: the judged answer was a different one.
    """
    judged = {score for kind in JUDGEMENTS.values() for score in kind.scores}
    scores = {name: value for name, value in prediction.scores.items() if name not in judged}
    for by_question in judgements.values():
        if judgement := by_question.get(prediction.question_id):
            if judgement.prediction != prediction.prediction:
                raise UserError(
                    f"{run / FOLDER}: question {prediction.question_id!r} had a different answer when it was judged; "
                    f"remove {run / FOLDER} and run `notewriter judge` again"
                )
            scores |= judgement.scores
    return replace(prediction, scores=scores)


def summary_of(judgements: RunJudgements) -> dict[str, dict[str, object]] | None:
    """The `judged` section of metrics.json: judgement -> its outcome; None where nothing was judged.

    For each: the judge's `model`, how many questions have scores (`scored`), how many have none by reason
    (`left_out`), and sums of the counts and of the judge's tokens.
    """
    summaries: dict[str, dict[str, object]] = {}
    for name, by_question in judgements.items():
        counts: Counter[str] = Counter()
        for judgement in by_question.values():
            counts.update(judgement.counts)
            counts["prompt_tokens"] += judgement.prompt_tokens
            counts["completion_tokens"] += judgement.completion_tokens
        summaries[name] = {
            "model": ", ".join(sorted({judgement.model for judgement in by_question.values()})),
            "scored": sum(not judgement.reason for judgement in by_question.values()),
            "left_out": dict(sorted(Counter(each.reason for each in by_question.values() if each.reason).items())),
            **dict(sorted(counts.items())),
        }
    return summaries or None


_TOKEN = re.compile(r"\w+|[^\w\s]")


def marked(reference: str, evidence: Sequence[str]) -> dict[str, int]:
    """Count the tokens of a text that quoted pieces of it mark as evidence.

    A piece marks the first place where all of its tokens occur, in the same order and case, and none is marked yet.

    Returns:
        `reference_tokens`, `evidence_tokens` (those marked), `pieces`, and `not_verbatim`: pieces without such a place.
    """
    tokens = _TOKEN.findall(reference)
    free, not_verbatim = [*tokens], 0
    for piece in map(_TOKEN.findall, evidence):
        start = _find(free, piece)
        if start is None:
            not_verbatim += 1
        else:
            free[start : start + len(piece)] = [""] * len(piece)
    return {
        "reference_tokens": len(tokens),
        "evidence_tokens": free.count(""),
        "pieces": len(evidence),
        "not_verbatim": not_verbatim,
    }


def _find(tokens: list[str], piece: list[str]) -> int | None:
    """The index at which a piece begins in a list of tokens; None where it does not occur."""
    if not piece:
        return None
    # No token contains a line break, so a text search finds whole tokens, at the speed of a text search.
    text = "\n" + "".join(f"{token}\n" for token in tokens)
    place = text.find("\n" + "".join(f"{token}\n" for token in piece))
    return None if place < 0 else text.count("\n", 0, place)
