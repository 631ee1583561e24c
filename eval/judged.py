"""`notewriter judge`: a judge model rates what finished runs answered, how they got there and what they noted.

`answer`: is a gold answer present in the prediction (judged_accuracy). `chain`: efficiency, redundancy and coherence
of the steps from 0 to 5, 5 the best of each (chain_efficiency, ...). `density`: the share of the note, or of the
passages where the method keeps none, that is evidence (knowledge_density). The scores join those of the run, for
compare and report; replies that cannot be read are counted by reason and left out of the means. What judging cost is in
`judged/costs.json`: tokens, seconds and, at given prices, money.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from eval.accounting import COSTS_SCHEMA, COUNTED, Calls, add_call, check_prices, spent
from eval.compare import check_present, read_metrics, read_predictions
from eval.evaluate import summarise
from eval.judgements import (
    FOLDER,
    JUDGEMENTS,
    NOT_READABLE,
    SCHEMA,
    Case,
    JudgementRecord,
    Outcome,
    read_judgements,
    reference_of,
    steps_of,
    summary_of,
    with_judgements,
)
from notewriter import jsonl
from notewriter.artifacts.run_folder import (
    ResumeArguments,
    check_journal,
    defaults,
    drop_errors,
    open_run,
    remaining,
)
from notewriter.artifacts.traces import TRACE_SCHEMA, Generation, TraceRecord
from notewriter.config import choose, parse
from notewriter.errors import UserError
from notewriter.locks import locked
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ModelArguments, served_models
from notewriter.records import Question
from notewriter.rollouts.loop import for_each_question
from notewriter.rollouts.resources import Resources, check_inputs, open_resources
from notewriter.rollouts.rollout import Rollout
from notewriter.typecheck import misfit


@dataclass
class Arguments:
    """What is judged."""

    runs: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "run folders that `evaluate` wrote; run the same command again to go on"}
    )
    judgements: Annotated[list[str], MinLen(1)] = field(
        default_factory=lambda: ["answer"], metadata={"help": f"any of: {', '.join(JUDGEMENTS)}"}
    )
    prices: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "{judge: [price of a million prompt tokens, of a million completion tokens]}, for judged/costs.json"
        },
    )


def main(argv: list[str]) -> None:
    """Judge; what was judged already is not asked again."""
    arguments, resume, models = parse(
        [Arguments, ResumeArguments, ModelArguments], argv, prog="notewriter judge", description=__doc__
    )
    for name in arguments.judgements:
        choose("judgement", name, JUDGEMENTS)
    check_prices(arguments.prices)
    check_inputs(models, None)
    runs = list(dict.fromkeys(map(Path, arguments.runs)))
    with contextlib.ExitStack() as folders:
        cases = {}
        for run in runs:
            read_metrics(run)
            folders.enter_context(locked(run))
            cases[run] = _read_cases(run)
            folders.enter_context(open_run(run / FOLDER, asdict(models), cases[run], defaults(models)))
        work = {run / FOLDER / f"{name}.jsonl": cases[run] for run in runs for name in arguments.judgements}
        for journal in work:
            check_journal(journal, JudgementRecord)
        if resume.retry_errors:
            for journal in work:
                drop_errors(journal)
        if any(remaining(journal, questions) for journal, questions in work.items()):
            with served_models(models, runs[0] / FOLDER) as roles:
                asyncio.run(_judge(models, roles, work))
        summaries = [_join(run, arguments.prices) for run in runs]
    sys.stdout.write("".join(summaries))


def _read_cases(run: Path) -> list[Question]:
    """A run's questions; what a judge gets to see of the answers is in their metadata, so that it is in their digest.

    Raises:
        UserError: a file is missing or malformed, or a prediction has no trace.
    """
    predictions = read_predictions(run)
    path = run / "traces.jsonl"
    check_present(path)
    seen: dict[str, dict[str, Any]] = {}
    for number, trace in jsonl.read(path):
        if trace.get("schema") != TRACE_SCHEMA:
            raise UserError(f"{path}:{number}: has the schema {trace.get('schema')!r}, not {TRACE_SCHEMA!r}")
        if problem := misfit(trace, TraceRecord, f"{path}:{number}"):
            raise UserError(f"{problem}; run the evaluation again")
        try:
            id = trace["question_id"]
            if id in predictions:
                question = predictions[id]["question"]
                seen[id] = {"steps": steps_of(trace), "reference": reference_of(trace, question)}
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}:{number}: is no whole trace (at {error}); run the evaluation again") from error
    if missing := predictions.keys() - seen.keys():
        raise UserError(f"{path}: has no trace of question {min(missing)!r}; run the evaluation again")
    return [
        Question(
            id=id,
            question=prediction["question"],
            answers=tuple(prediction["answers"]),
            metadata={key: prediction[key] for key in ("prediction", "error")} | seen[id],
        )
        for id, prediction in predictions.items()
    ]


async def _judge(models: ModelArguments, roles: Any, work: dict[Path, list[Question]]) -> None:
    async with open_resources(models, roles, None) as resources:
        for journal, questions in work.items():
            name, run = journal.stem, journal.parent.parent.name

            async def judge(question: Question, name: str = name) -> dict[str, Any]:
                return await judge_one(question, name, resources)

            await for_each_question(
                questions, judge, journal, concurrency=models.concurrency, description=f"{run}: judging {name}"
            )


async def judge_one(question: Question, name: str, resources: Resources) -> dict[str, Any]:
    """One judgement of one question, with the judge's raw reply, as a line of `judged/<name>.jsonl`.

    A question that ended in an error scores 0, as by every metric, and no judge is asked. A reply that cannot be
    read and a request that the endpoint refuses (a prompt beyond the judge's context) leave a reason and no score.
    """
    rollout = Rollout(question, name, resources)

    seen = question.metadata
    case = Case(
        question.question, question.answers, seen["prediction"], seen["steps"], seen["reference"], rollout.generate
    )
    judgement, refusal = JUDGEMENTS[name], ""
    if seen["error"]:
        outcome = Outcome(dict.fromkeys(judgement.scores, 0.0))
    else:
        try:
            outcome = await judgement.judge(case)
        except RequestRefused as error:
            outcome, refusal = Outcome(reason="request refused"), str(error)
    completions = [step.completion for step in rollout.trace.steps if isinstance(step, Generation)]
    if outcome == NOT_READABLE and completions[-1].finish_reason == "length":
        outcome = Outcome(reason="judge reply cut at max_tokens")
    client = resources.clients.get("judge", resources.clients["policy"])
    return {
        "schema": SCHEMA,
        "question_id": question.id,
        "prediction": seen["prediction"],
        "model": client.endpoint.model,
        "scores": outcome.scores,
        "reason": outcome.reason,
        "refusal": refusal,
        "counts": outcome.counts,
        "replies": [completion.text for completion in completions],
        **{key: sum(getattr(completion, key) for completion in completions) for key in COUNTED[1:]},
    }


def _join(run: Path, prices: dict[str, list[float]]) -> str:
    """Let the scores join those of predictions.jsonl and metrics.json, write what they cost; returns what to tell."""
    judgements = read_judgements(run)
    predictions = [with_judgements(prediction, judgements, run) for prediction in read_predictions(run).values()]
    metrics = read_metrics(run) | summarise(predictions) | summary_of(judgements)
    jsonl.write(run / "predictions.jsonl", predictions)
    jsonl.write_text(run / "metrics.json", [json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"])
    costs = _costs(judgements, prices)
    jsonl.write_text(run / FOLDER / "costs.json", [json.dumps(costs, indent=2, ensure_ascii=False) + "\n"])
    return _summary(metrics, run, list(judgements), costs)


def _costs(judgements: dict[str, dict[str, Any]], prices: dict[str, list[float]]) -> dict[str, Any]:
    """What judging cost, as `evaluate` tells it of a run; seconds are not in metrics.json, which a repetition keeps."""
    calls: Calls = {}
    for name, records in judgements.items():
        for record in records.values():
            if record["replies"]:
                # Records of earlier versions hold neither seconds nor cached tokens.
                add_call(calls, f"judge/{name}", "judge", dict.fromkeys(COUNTED, 0) | record)
    return {"schema": COSTS_SCHEMA, **spent(calls, prices), "counts": {}, "compression": None}


def _summary(metrics: dict[str, Any], run: Path, judgements: Sequence[str], costs: dict[str, Any]) -> str:
    lines = [f"{metrics['name']}: {metrics['questions']} questions, in {run}"]
    for name in judgements:
        told = metrics["judged"][name]
        left_out = "".join(f", {count} left out: {reason}" for reason, count in told["left_out"].items())
        lines.append(f"  {name}: {told['scored']} scored by {told['model']}{left_out}")
        for score in JUDGEMENTS[name].scores:
            if interval := metrics["metrics"].get(score):
                lines.append(f"    {score:20} {interval['mean']:6.3f}  [{interval['low']:.3f}, {interval['high']:.3f}]")
    if "money" in costs:
        lines.append(f"  money: {costs['money']:,.4f}")
    return "\n".join(lines) + "\n"
