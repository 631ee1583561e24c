"""Judgements: what a judge model is asked about a question of a finished run, and how its reply becomes scores.

A judgement is an async function of a `Case`; `JUDGEMENTS` holds them by name. A run's folder keeps what was judged
in `judged/`, a file a judgement; here is also how that joins the run's other scores.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.metrics.metric import Metric
from notewriter import jsonl
from notewriter.errors import UserError
from notewriter.method import Stage
from notewriter.rollouts.parsing import parse_correct, parse_evidence, parse_ratings
from notewriter.typecheck import misfit

FOLDER = "judged"
"""The folder in a run's folder that holds its judgements, one judge's."""

SCHEMA = "notewriter/judgement/1"

Record = dict[str, Any]

ANSWER = Stage("judge/answer", "judge")
CHAIN = Stage("judge/chain", "judge")
DENSITY = Stage("judge/density", "judge")


@dataclass(frozen=True)
class Case:
    """What a judgement gets to see of a question: golds, prediction, the steps in words, and the reference text.

    `ask` sends a prompt to the judge's model and returns its reply. `reference` is None where there is none.
    """

    question: str
    golds: Sequence[str]
    prediction: str
    steps: Sequence[str]
    reference: str | None
    ask: Callable[..., Awaitable[str]]


@dataclass(frozen=True)
class Outcome:
    """The scores of a question, or a `reason` why it has none; `counts` are numbers that belong to the scores."""

    scores: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class JudgementRecord:
    """What a line of `judged/<name>.jsonl` needs to hold."""

    question_id: str
    prediction: str
    model: str
    scores: dict[str, float]
    reason: str
    counts: dict[str, int]
    replies: list[str]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    seconds: float = 0.0
    refusal: str = ""


NOT_READABLE = Outcome(reason="judge reply not readable")

CRITERIA = ("efficiency", "redundancy", "coherence")


def _object(properties: Record) -> Record:
    """A JSON schema of an object with just these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


async def answer(case: Case) -> Outcome:
    """`judged_accuracy`: 1.0 where a gold answer is present in the prediction by its meaning, else 0.0.

    ReaRAG's ACC_L (section 4.1) and NotesWriting's GPT-4 score (figure 6) ask the same. One gold of several is
    enough, also where each answers another reading of the question (ASQA). A prediction without a word holds
    none, and no judge is asked.
    """
    if not case.prediction.strip():
        return Outcome({"judged_accuracy": 0.0})
    schema = _object({"correct": {"type": "string", "enum": ["yes", "no"]}})
    correct = parse_correct(
        await case.ask(
            ANSWER,
            json_schema=schema,
            question=case.question,
            golds=case.golds,
            prediction=case.prediction,
        )
    )
    return NOT_READABLE if correct is None else Outcome({"judged_accuracy": float(correct)})


async def chain(case: Case) -> Outcome:
    """`chain_efficiency`, `chain_redundancy`, `chain_coherence`: the quality of the steps, each from 0 to 5.

    5 is the best of each: a redundancy of 5 is a chain that repeats nothing (NotesWriting, section 6, figure 7).
    """
    if not case.steps:
        return Outcome(reason="no steps")
    schema = _object({criterion: {"type": "integer", "enum": list(range(6))} for criterion in CRITERIA})
    reply = await case.ask(CHAIN, json_schema=schema, question=case.question, steps=case.steps)
    ratings = parse_ratings(reply, CRITERIA, 5)
    if ratings is None:
        return NOT_READABLE
    return Outcome({f"chain_{criterion}": rating for criterion, rating in ratings.items()})


async def density(case: Case) -> Outcome:
    """`knowledge_density`: the share of the reference text, in tokens, that the judge marks as evidence.

    DeepNote, section 5.3: evidence tokens / reference tokens, where the model that answers marks the evidence; give
    that one as the judge to repeat the paper. A piece that does not stand in the text word for word does not count,
    and none counts twice. Tokens are words and punctuation marks, so that no tokenizer is needed.
    """
    if case.reference is None:
        return Outcome(reason="no reference text")
    if not case.reference.strip():
        return Outcome(reason="empty reference text")
    schema = _object({"evidence": {"type": "array", "items": {"type": "string"}}})
    reply = await case.ask(DENSITY, json_schema=schema, question=case.question, reference=case.reference)
    evidence = parse_evidence(reply)
    if evidence is None:
        return NOT_READABLE
    counts = marked(case.reference, evidence)
    return Outcome({"knowledge_density": counts["evidence_tokens"] / counts["reference_tokens"]}, counts=counts)


@dataclass(frozen=True)
class Judgement:
    """How a judgement is asked, and the scores that it gives."""

    judge: Callable[[Case], Awaitable[Outcome]]
    metrics: tuple[Metric, ...]

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores' names."""
        return tuple(metric.name for metric in self.metrics)


def _rating(name: str, label: str, scale: str) -> Metric:
    return Metric(name, label, f"A judge model's rating of the steps; {scale}.", decimals=1)


JUDGEMENTS = {
    "answer": Judgement(
        answer,
        (Metric("judged_accuracy", "Accuracy, by the judge", "Share of predictions that contain a gold answer."),),
    ),
    "chain": Judgement(
        chain,
        (
            _rating("chain_efficiency", "Efficiency of the chain (0 to 5)", "5 is the best"),
            _rating("chain_redundancy", "Redundancy of the chain (0 to 5; 5: none)", "5 is none at all"),
            _rating("chain_coherence", "Coherence of the chain (0 to 5)", "5 is the best"),
        ),
    ),
    "density": Judgement(
        density,
        (Metric("knowledge_density", "Knowledge density", "Share of the note that a judge model marks as evidence."),),
    ),
}

_TOKEN = re.compile(r"\w+|[^\w\s]")


def marked(reference: str, evidence: Sequence[str]) -> dict[str, int]:
    """How many tokens of a text are marked by pieces of it.

    A piece marks the first place where all of its tokens stand, in this order and case, and none is marked yet.

    Returns:
        `reference_tokens`, `evidence_tokens` (those that are marked), `pieces`, and `not_verbatim`: pieces that
        have no such place.
    """
    tokens = _TOKEN.findall(reference)
    free, lost = [*tokens], 0
    for piece in map(_TOKEN.findall, evidence):
        start = _find(free, piece)
        if start is None:
            lost += 1
        else:
            free[start : start + len(piece)] = [""] * len(piece)
    return {
        "reference_tokens": len(tokens),
        "evidence_tokens": free.count(""),
        "pieces": len(evidence),
        "not_verbatim": lost,
    }


def _find(tokens: list[str], piece: list[str]) -> int | None:
    """Where a piece begins in a list of tokens; None where it does not stand in it."""
    if not piece:
        return None
    # No token holds a line break, so that a search for text finds whole tokens, and at the speed of one.
    text = "\n" + "".join(f"{token}\n" for token in tokens)
    place = text.find("\n" + "".join(f"{token}\n" for token in piece))
    return None if place < 0 else text.count("\n", 0, place)


def steps_of(trace: Record) -> list[str]:
    """A trace's steps as a judge reads them: searches with the titles found, and what was written at which stage."""
    return [_STEPS[step["kind"]](step) for step in trace["steps"]]


def _search(step: Record) -> str:
    found = "; ".join(passage["title"] for passage in step["passages"]) or "nothing"
    return f"search: {step['query']}\nfound: {found}"


def _written(step: Record) -> str:
    return f"{step['stage'].rpartition('/')[2].replace('_', ' ')}: {step['completion']['text'].strip()}"


_STEPS: dict[str, Callable[[Record], str]] = {"retrieve": _search, "generate": _written}

_FIRST_PASSAGE = re.compile(r"^\[1\] ", re.MULTILINE)
_LABEL = re.compile(r"\s*\bquestion:\s*\Z", re.IGNORECASE)


def reference_of(trace: Record, question: str) -> str | None:
    """The text that a trace's answer was written from (DeepNote's reference, section 5.3).

    It is the note, where the method keeps one. Else there is none (None) where nothing was retrieved. Else it is the
    passages in the last prompt, from the first one that is numbered to the question. Else it is the observations in
    the last chat, as a method that acts saw them.
    """
    if trace["note"] is not None:
        return str(trace["note"])
    if not any(step["kind"] == "retrieve" and step["passages"] for step in trace["steps"]):
        return None
    prompts = [step["messages"] for step in trace["steps"] if step["kind"] == "generate"]
    if prompts and (first := _FIRST_PASSAGE.search(text := prompts[-1][0]["content"])):
        end = text.rfind(question)
        return _LABEL.sub("", text[first.start() : end if end > first.start() else None]).strip()
    for messages in reversed(prompts):
        if seen := [message["content"] for message in messages[1:] if message["role"] == "user"]:
            return "\n".join(seen)
    return None


def read_judgements(run: Path) -> dict[str, dict[str, Record]]:
    """What a run's folder holds of judgements: judgement -> question id -> record; empty where none was judged.

    Raises:
        UserError: a line is not what `notewriter judge` writes.
    """
    paths = {name: run / FOLDER / f"{name}.jsonl" for name in JUDGEMENTS}
    return {name: _read(path) for name, path in paths.items() if path.exists()}


def _read(path: Path) -> dict[str, Record]:
    with jsonl.Journal(path):  # removes a last line that a kill has cut
        pass
    records = {}
    for number, record in jsonl.read(path):
        if record.get("schema") != SCHEMA:
            raise UserError(
                f"{path}:{number}: has the schema {record.get('schema')!r}, not {SCHEMA!r}; "
                f"remove {path.parent} and run `notewriter judge` again"
            )
        if problem := misfit(record, JudgementRecord, f"{path}:{number}"):
            raise UserError(f"{problem}; remove {path.parent} and run `notewriter judge` again")
        records[record["question_id"]] = record
    return records


def with_judgements(prediction: Record, judgements: dict[str, dict[str, Record]], run: Path) -> Record:
    """A line of predictions.jsonl whose scores have those of the judgements, and no others that a judge gave before.

    Raises:
        UserError: another answer to the question was judged.
    """
    judged = {score for judgement in JUDGEMENTS.values() for score in judgement.scores}
    scores = {name: value for name, value in prediction["scores"].items() if name not in judged}
    for records in judgements.values():
        if record := records.get(prediction["question_id"]):
            if record["prediction"] != prediction["prediction"]:
                raise UserError(
                    f"{run / FOLDER}: question {prediction['question_id']!r} had another answer when it was judged; "
                    f"remove {run / FOLDER} and run `notewriter judge` again"
                )
            scores |= record["scores"]
    return prediction | {"scores": scores}


def summary_of(judgements: dict[str, dict[str, Record]]) -> Record:
    """What metrics.json tells of judgements beside the means: `{"judged": judgement -> ...}`; empty without any.

    For each: the judge's `model`, the number of questions that have scores (`scored`), the number of those that have
    none by the reason (`left_out`), sums of what was counted and of the judge's tokens.
    """
    told = {}
    for name, records in judgements.items():
        counts: Counter[str] = Counter()
        for record in records.values():
            counts.update(record["counts"])
            counts.update({key: record[key] for key in ("prompt_tokens", "completion_tokens")})
        reasons = Counter(record["reason"] for record in records.values() if record["reason"])
        told[name] = {
            "model": ", ".join(sorted({record["model"] for record in records.values()})),
            "scored": sum(not record["reason"] for record in records.values()),
            "left_out": dict(sorted(reasons.items())),
            **dict(sorted(counts.items())),
        }
    return {"judged": told} if told else {}
