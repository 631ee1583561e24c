"""A method is run over a benchmark and scored: the work of `notewriter evaluate` and of a table's cell."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from notewriter import __version__
from notewriter.artifacts.costs import write_costs
from notewriter.artifacts.journal import (
    ResumeArguments,
    check_answered,
    check_journal,
    drop_errors,
    finished,
    has_errors,
    remaining,
)
from notewriter.artifacts.judgements import FOLDER
from notewriter.artifacts.metrics import Interval, Metrics, write_metrics
from notewriter.artifacts.predictions import read_predictions, write_predictions
from notewriter.artifacts.traces import Trace, TraceRecord
from notewriter.artifacts.trackers import tracking
from notewriter.datasets import BENCHMARKS
from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.evaluation.accounting import run_costs
from notewriter.evaluation.catalogue import check_family
from notewriter.evaluation.controls import controls_summary
from notewriter.evaluation.judgements import read_run_judgements, summary_of, with_judgements
from notewriter.evaluation.metrics import FAMILIES, check_questions
from notewriter.evaluation.scoring import prediction_of, summarise, trace_of
from notewriter.ground import typed
from notewriter.ground.config import choose, from_keywords
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_in, option
from notewriter.ground.records import Question
from notewriter.methods import METHODS, check_index, check_stages, prepare, with_style
from notewriter.methods.notes_writing import SKIPPED_PARTS, SPLIT_PAGES
from notewriter.models.prices import CostArguments, check_costs, prices_of
from notewriter.models.roles import ModelArguments, policy_of
from notewriter.retrieval.chain import Part, parts_of
from notewriter.rollouts.identity import config_hash, open_run
from notewriter.rollouts.method import Method
from notewriter.rollouts.rehearsal import estimated
from notewriter.rollouts.replies import count_replies, tell_of_replies
from notewriter.rollouts.resources import Resources, check_inputs
from notewriter.rollouts.runner import run_questions

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class EvaluateArguments(QuestionArguments):
    """The options of `notewriter evaluate`: the method, the questions, and the scores of answers."""

    method: str = option("deepnote", f"one of: {', '.join(METHODS)}", of="method", plugins=METHODS, names=names_in)
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the method's options, e.g. {top_k: 5, max_step: 3}", "of": "method"}
    )
    family: str | None = option(
        None,
        f"the metric family that scores answers; default: the dataset's own. One of: {', '.join(FAMILIES)}",
        plugins=FAMILIES,
        names=names_in,
    )
    controls: bool = option(
        False,
        "also score notes without a model: sentences of the passages that the run found, at as many words "
        "as its notes. Where a third of the questions is yes or no, score constant answers too. No model is called",
        effect=False,
    )
    name: str | None = option(None, "the run's name in tables; default: the folder's name")


OPTIONS = (EvaluateArguments, ModelArguments, CostArguments)
"""The options of an evaluation."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation with checked inputs.

    Args:
        arguments: with the defaults that follow from the benchmark.
        models: the models.
        costs: the prices of its calls, and its budget.
        method: the method.
        family: the metric family.
        parts: the parts of the retriever.
        questions: the selected questions.
    """

    arguments: EvaluateArguments
    models: ModelArguments
    costs: CostArguments
    method: Method
    family: str
    parts: list[Part]
    questions: list[Question]

    @property
    def config(self) -> dict[str, Any]:
        """The options that decide the result, for the run folder."""
        return asdict(self.arguments) | asdict(self.models) | {"prices": self.costs.prices}

    async def work(self, question: Question, resources: Resources) -> dict[str, Any]:
        """Roll out a question; returns its trace as JSON."""
        return await trace_of(question, resources, self.method, self.arguments.method_options)


def evaluate(**options: Any) -> Metrics:
    """Run a method over a benchmark and score it, or resume the run in `output_dir`.

    Args:
        options: those of `notewriter evaluate` by name, such as `dataset="hotpotqa", path="questions.jsonl",
            output_dir="runs/mine", method="deepnote", index="indexes/wiki", serve="Qwen/Qwen2.5-7B-Instruct"`. A
            method, dataset or metric family of another package or file is named as on the command line.

    Raises:
        UserError: an option is unknown, missing or out of bounds; an input is missing, malformed or contradicts another
            one; the folder contains another run; a server or an endpoint fails; all questions ended in an error.
    """
    arguments, models, costs, resume = from_keywords([*OPTIONS, ResumeArguments], options)
    return run(checked(arguments, models, costs), resume)


def checked(arguments: EvaluateArguments, models: ModelArguments, costs: CostArguments) -> Evaluation:
    """The evaluation that the arguments describe; all its inputs are checked before anything is written or started.

    Raises:
        UserError: an input is missing, malformed or contradicts another one.
    """
    benchmark = choose("dataset", arguments.dataset, BENCHMARKS)
    family = arguments.family or benchmark.family
    check_family(family)
    method = prepare(arguments.method, arguments.method_options)
    parts = parts_of(arguments.index, arguments.retriever)
    check_index(method, parts)
    check_costs(costs)
    check_inputs(models, parts)
    check_stages(method, models)
    options = with_style(arguments.method, arguments.method_options, benchmark)
    complete = replace(arguments, family=family, method_options=options)
    complete, questions = load_selected(complete)
    check_questions(family, questions)
    return Evaluation(complete, models, costs, method, family, parts, questions)


def run(evaluation: Evaluation, resume: ResumeArguments, command: Sequence[str] = ()) -> Metrics:
    """Evaluate in the run folder; questions that were finished before are not asked again.

    Args:
        evaluation: what `checked` returned.
        resume: how to resume.
        command: the command line, for the run's record; empty from Python.

    Raises:
        UserError: the folder contains another run, a server or an endpoint fails, or all questions ended in an error.
    """
    arguments, models, questions = evaluation.arguments, evaluation.models, evaluation.questions
    policy_of(models)
    with (
        open_run(arguments.output_dir, evaluation.config, questions, OPTIONS, command) as folder,
        tracking(arguments.report_to, folder, evaluation.config) as track,
    ):
        journal = folder / "traces.jsonl"
        check_journal(journal, TraceRecord)
        if resume.retry_errors and has_errors(journal):
            if (judged := folder / FOLDER).is_dir():
                raise UserError(
                    f"{judged}: has judgements of answers that --retry_errors would replace; remove the folder, and "
                    "judge again afterwards: replies for answers that stay the same are in the judge's cache"
                )
            # With it the folder would count as finished, and now some questions have no trace.
            (folder / "metrics.json").unlink(missing_ok=True)
            drop_errors(journal)
        if remaining(journal, questions):
            run_questions(
                models,
                evaluation.parts,
                questions,
                evaluation.work,
                journal,
                description="evaluating",
                count=lambda trace: {"errors": int(bool(trace["error"]))},
                costs=evaluation.costs,
                track=track,
            )
        # A folder with metrics.json is finished, and a table of zeros would be taken for a result.
        check_answered(journal, questions)
        metrics = _finish(folder, evaluation)
        track({name: interval.mean for name, interval in metrics.metrics.items()} | metrics.per_question, None)
        return metrics


def _finish(folder: Path, evaluation: Evaluation) -> Metrics:
    """Write predictions.jsonl, costs.json and metrics.json from the traces, in the order of the questions.

    Scores that `notewriter judge` left in the folder are kept.
    """
    arguments, questions = evaluation.arguments, evaluation.questions

    def traces() -> Iterator[Trace]:
        """One at a time in memory."""
        return (typed.read(record, Trace, str(folder)) for record in finished(folder / "traces.jsonl", questions))

    by_id = {question.id: question for question in questions}
    judgements = read_run_judgements(folder)
    scored = (prediction_of(by_id[trace.question_id], trace, evaluation.family) for trace in traces())
    path = folder / "predictions.jsonl"
    write_predictions(path, (with_judgements(prediction, judgements, folder) for prediction in scored))
    predictions = read_predictions(path).values()
    replies = count_replies(step for trace in traces() for step in trace.generations)
    metrics = Metrics(
        name=arguments.name or folder.name,
        dataset=arguments.dataset,
        method=arguments.method,
        model=_model_name(evaluation.models),
        family=evaluation.family,
        **summarise(predictions),
        estimate=estimated(folder).get("estimate"),
        config_hash=config_hash(evaluation.config, *OPTIONS),
        version=__version__,
        judged=summary_of(judgements),
        cut=replies.cut,
        unknown_marks=replies.unknown or None,
        controls=_controls(folder, evaluation.family) if arguments.controls else None,
    )
    prices = prices_of(evaluation.costs.prices, evaluation.models.models)
    costs = run_costs(traces(), predictions, prices)
    write_costs(folder / "costs.json", costs)
    _tell_of_long_pages(folder, costs.counts)
    tell_of_replies(replies, folder)
    write_metrics(folder / "metrics.json", metrics)
    return metrics


def _tell_of_long_pages(folder: Path, counts: Mapping[str, int]) -> None:
    if pages := counts.get(SPLIT_PAGES):
        logger.info("%s: pages beyond the note-taker's context, which were read in parts: %d", folder, pages)
    if parts := counts.get(SKIPPED_PARTS):
        logger.warning(
            "%s: pages or parts of pages without a note, since they were refused at any length: %d; give the "
            "note-taker a longer context, or let it reply with fewer tokens (--max_tokens)",
            folder,
            parts,
        )


def _controls(folder: Path, family: str) -> dict[str, dict[str, Interval]] | None:
    try:
        return controls_summary(folder, family)
    except UserError as error:
        logger.warning("controls: not scored. %s", error)
        return None


def _model_name(models: ModelArguments) -> str:
    """The name of the policy's model; of a served one, its folder's."""
    policy = models.models.get("policy", {})
    path = models.serve or policy.get("serve")
    return Path(path).name if path else str(models.model or policy.get("model", ""))
