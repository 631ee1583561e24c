"""Finished runs are judged: each question by each judgement, the scores merged into predictions and metrics."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from notewriter.artifacts.costs import Costs, write_costs
from notewriter.artifacts.journal import ResumeArguments, check_answered, check_journal, drop_errors, remaining
from notewriter.artifacts.judgements import FOLDER, Judgement
from notewriter.artifacts.metrics import Metrics, read_metrics, write_metrics
from notewriter.artifacts.predictions import read_predictions, write_predictions
from notewriter.artifacts.run_record import add_parameters
from notewriter.artifacts.traces import read_traces
from notewriter.evaluation.accounting import Calls, add_call, costs_of
from notewriter.evaluation.evidence import reference_of
from notewriter.evaluation.judgements import (
    JUDGEMENTS,
    NOT_READABLE,
    Answered,
    Outcome,
    RunJudgements,
    read_run_judgements,
    summary_of,
    with_judgements,
)
from notewriter.evaluation.scoring import summarise
from notewriter.evaluation.steps import chain_of, outline_of
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.locks import locked
from notewriter.ground.records import Question
from notewriter.models.client import RequestRefused
from notewriter.models.prices import Budget, CostArguments, Prices, check_costs, prices_of
from notewriter.models.roles import ModelArguments, Roles, policy_of, served_models
from notewriter.rollouts.identity import open_run
from notewriter.rollouts.resources import Resources, budget_of, check_inputs, open_resources
from notewriter.rollouts.rollout import Rollout
from notewriter.rollouts.runner import for_each_question

Chains = dict[str, list[str]]
"""Question id -> the steps of its trace (`chain_of`)."""


def judge(
    runs: Sequence[Path],
    judgements: Sequence[str],
    models: ModelArguments,
    resume: ResumeArguments,
    costs: CostArguments,
    command: Sequence[str] = (),
) -> list[str]:
    """Judge run folders, one after another; questions that were judged before are not judged again.

    `command` is the command line, for the record in each folder; empty from Python.

    Returns a summary of each run, in words.

    Raises:
        UserError: a judgement or an endpoint does not exist, a run cannot be read, or the judge's endpoint refused all
            requests.
    """
    for name in judgements:
        choose("judgement", name, JUDGEMENTS)
    check_costs(costs)
    check_inputs(models, None)
    policy_of(models)
    with contextlib.ExitStack() as folders:
        cases, chains = {}, {}
        for run in runs:
            read_metrics(run / "metrics.json")
            folders.enter_context(locked(run))
            cases[run], chains[run / FOLDER] = _read_cases(run)
            folders.enter_context(open_run(run / FOLDER, asdict(models), cases[run], [ModelArguments], command))
        work = {run / FOLDER / f"{name}.jsonl": cases[run] for run in runs for name in judgements}
        for journal in work:
            check_journal(journal, Judgement)
        if resume.retry_errors:
            for journal in work:
                drop_errors(journal)
        if any(remaining(journal, questions) for journal, questions in work.items()):
            with served_models(models, runs[0] / FOLDER) as roles:
                budget = budget_of(costs, models, roles, runs[0] / FOLDER)
                run_async(_judge(models, roles, budget, work, chains))
        summaries = [_merge(run, prices_of(costs.prices, models.models)) for run in runs]
        for journal, questions in work.items():
            check_answered(journal, questions)
        return summaries


def _read_cases(run: Path) -> tuple[list[Question], Chains]:
    """A run's questions, and their chains.

    The questions' metadata have the answers and steps, so that a change of these changes the questions' digest.

    Raises:
        UserError: a file is missing or malformed, or a prediction has no trace.
    """
    predictions = read_predictions(run / "predictions.jsonl")
    path = run / "traces.jsonl"
    seen: dict[str, dict[str, Any]] = {}
    chains: Chains = {}
    for trace in read_traces(path):
        if trace.question_id in predictions:
            reference = reference_of(trace, predictions[trace.question_id].question)
            seen[trace.question_id] = {"steps": outline_of(trace), "reference": reference}
            chains[trace.question_id] = chain_of(trace)
    if missing := predictions.keys() - seen.keys():
        raise UserError(f"{path}: has no trace of question {min(missing)!r}; run the evaluation again")
    questions = [
        Question(
            id=id,
            question=prediction.question,
            answers=tuple(prediction.answers),
            metadata={"prediction": prediction.prediction, "error": prediction.error} | seen[id],
        )
        for id, prediction in predictions.items()
    ]
    return questions, chains


async def _judge(
    models: ModelArguments,
    roles: Roles,
    budget: Budget | None,
    work: Mapping[Path, list[Question]],
    chains: Mapping[Path, Chains],
) -> None:
    async with open_resources(models, roles, None, budget) as resources:
        await resources.try_out()
        for journal, questions in work.items():
            name, run, steps = journal.stem, journal.parent.parent.name, chains[journal.parent]

            async def judge(question: Question, name: str = name, steps: Chains = steps) -> dict[str, Any]:
                return (await judge_one(question, steps[question.id], name, resources)).to_dict()

            try:
                await for_each_question(
                    questions, judge, journal, concurrency=models.concurrency, description=f"{run}: judging {name}"
                )
            finally:
                add_parameters(journal.parent, resources.parameters)


async def judge_one(question: Question, steps: Sequence[str], name: str, resources: Resources) -> Judgement:
    """Judge one question (`_read_cases`) and its steps (`chain_of`).

    A question that ended in an error scores 0, as with every metric, without asking the judge. An unreadable reply and
    a request that the endpoint refuses (a prompt longer than the judge's context) leave a reason and no score.
    """
    client = resources.client("judge")
    rollout = Rollout(question, name, resources)
    seen = question.metadata
    case = Answered(question.question, question.answers, seen["prediction"], steps, seen["reference"], rollout.generate)
    kind, refusal = JUDGEMENTS[name], ""
    if seen["error"]:
        outcome = Outcome(dict.fromkeys(kind.scores, 0.0))
    else:
        try:
            outcome = await kind.judge(case)
        except RequestRefused as error:
            outcome, refusal = Outcome(reason="request refused"), str(error)
    completions = [step.completion for step in rollout.trace.generations]
    if outcome == NOT_READABLE and completions[-1].finish_reason == "length":
        outcome = Outcome(reason="judge reply cut at max_tokens")
    return Judgement(
        question_id=question.id,
        prediction=seen["prediction"],
        model=client.endpoint.model,
        scores=outcome.scores,
        reason=outcome.reason,
        refusal=refusal,
        counts=outcome.counts,
        replies=[completion.text for completion in completions],
        prompt_tokens=sum(completion.prompt_tokens for completion in completions),
        cached_tokens=sum(completion.cached_tokens for completion in completions),
        completion_tokens=sum(completion.completion_tokens for completion in completions),
        seconds=sum(completion.seconds for completion in completions),
        ended=max((completion.ended for completion in completions), default=0.0),
    )


def _merge(run: Path, prices: Prices) -> str:
    """Merge the scores into predictions.jsonl and metrics.json, and write their costs; returns the text to print."""
    judgements = read_run_judgements(run)
    before = read_predictions(run / "predictions.jsonl").values()
    predictions = [with_judgements(prediction, judgements, run) for prediction in before]
    metrics = replace(read_metrics(run / "metrics.json"), **summarise(predictions), judged=summary_of(judgements))
    costs = _costs(judgements, prices)
    write_predictions(run / "predictions.jsonl", predictions)
    write_metrics(run / "metrics.json", metrics)
    write_costs(run / FOLDER / "costs.json", costs)
    return _summary(metrics, run, costs)


def _costs(judgements: RunJudgements, prices: Prices) -> Costs:
    """The cost of judging. Its tokens are in metrics.json too; its seconds are not, as they differ in a repetition."""
    calls: Calls = {}
    for name, by_question in judgements.items():
        for judgement in by_question.values():
            if judgement.replies:
                add_call(calls, f"judge/{name}", "judge", judgement)
    return costs_of(calls, prices)


def _summary(metrics: Metrics, run: Path, costs: Costs) -> str:
    lines = [f"{metrics.name}: {metrics.questions} questions, in {run}"]
    judged: dict[str, Any] = metrics.judged or {}
    for name, told in judged.items():
        reasons = "".join(f", {count} left out: {reason}" for reason, count in told["left_out"].items())
        lines.append(f"  {name}: {told['scored']} scored by {told['model']}{reasons}")
        for score in JUDGEMENTS[name].scores:
            if interval := metrics.metrics.get(score):
                lines.append(f"    {score:20} {interval.mean:6.3f}  [{interval.low:.3f}, {interval.high:.3f}]")
    if costs.money is not None:
        lines.append(f"  money: {costs.money:,.4f}")
    return "\n".join(lines) + "\n"
