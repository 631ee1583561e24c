"""`notewriter pairs`: questions become preference pairs, by running methods in the sampling rollout (DNAlign)."""

import asyncio
import itertools
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_construction.gold import GOLD
from data_construction.judges import JUDGED_STAGES, JUDGES
from data_construction.pairs_format import COLUMNS
from data_construction.sampling import Harvest, Recipe, SamplingRollout
from data_construction.splits import dev_questions, write_splits
from eval.metrics import FAMILIES
from notewriter import __version__, jsonl
from notewriter.config import choose, parse
from notewriter.datasets import load_questions, select
from notewriter.errors import UserError
from notewriter.llm import RequestRefused
from notewriter.methods import Method, prepare, retrieves
from notewriter.records import Question
from notewriter.rollout import Resources
from notewriter.runs import (
    ModelArguments,
    check_inputs,
    config_hash,
    finished,
    for_each_question,
    open_resources,
    open_run,
    remaining,
    served_models,
)

logger = logging.getLogger(__name__)


@dataclass
class Arguments:
    """What is rolled out, which stages are trained, and who judges them."""

    dataset: str = field(metadata={"help": "jsonl, hotpotqa, 2wikimultihopqa or musique: the format of --path"})
    path: str = field(metadata={"help": "the question file"})
    index: list[str] = field(
        metadata={"help": "the index to retrieve from (notewriter index); several are searched as one"}
    )
    output_dir: str = field(metadata={"help": "where pairs, statistics and traces go; run again to go on"})
    stages: dict[str, Any] = field(
        metadata={
            "help": "stage -> judge, e.g. {deepnote/init_note: llm, vanilla/answer: metric}; the methods named by the "
            f"stages are run. Judges: {', '.join(JUDGES)}"
        },
    )
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "method -> its options, e.g. {deepnote: {max_step: 1, max_failure: 1}}"}
    )
    top_k_range: list[int] = field(
        default_factory=lambda: [3, 9],
        metadata={"help": "passages a retrieval, drawn for each question between the two, so that prompts vary"},
    )
    temperatures: list[float] = field(
        default_factory=lambda: [0.1, 0.5, 0.9], metadata={"help": "candidates: one for each temperature x top_p"}
    )
    top_ps: list[float] = field(default_factory=lambda: [0.1, 0.5, 0.9], metadata={"help": "see temperatures"})
    gold_stages: list[str] = field(
        default_factory=list,
        metadata={
            "help": "stages where what the gold evidence would write joins the candidates, marked in the pair; "
            f"for weak teachers. Possible at: {', '.join(GOLD)}"
        },
    )
    quotas: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "stage -> at most so many pairs are kept, those of the first questions"},
    )
    min_gap: float = field(default=0.0, metadata={"help": "smallest difference of scores that makes a pair"})
    family: str = field(default="hotpotqa", metadata={"help": f"metric family for answers: {', '.join(FAMILIES)}"})
    limit: int | None = field(default=None, metadata={"help": "at most so many questions, drawn with the seed"})
    dev_share: float = field(default=0.1, metadata={"help": "share of the questions whose pairs go to dev.parquet"})
    seed: int = field(default=0, metadata={"help": "for the draw of questions, top-k, the judge's order, the split"})


def main(argv: list[str]) -> None:
    """Build pairs; what exists already in the output folder is not done again."""
    arguments, models = parse([Arguments, ModelArguments], argv, prog="notewriter pairs", description=__doc__)
    recipe, methods = _prepare(arguments)
    check_inputs(models, arguments.index)
    questions = select(load_questions(arguments.dataset, arguments.path), arguments.limit, arguments.seed)
    config = asdict(arguments) | asdict(models)
    with open_run(arguments.output_dir, config, questions) as folder:
        journal = folder / "rollouts.jsonl"
        if remaining(journal, questions):
            with served_models(models, folder) as roles:
                asyncio.run(_roll_out(arguments, models, roles, recipe, methods, questions, journal))
        stats = _finish(arguments, folder, journal, questions, config)
    sys.stdout.write(_summary(stats, folder))


def _prepare(arguments: Arguments) -> tuple[Recipe, dict[str, tuple[Method, dict[str, Any]]]]:
    """Everything that can be wrong in the configuration is found here, before any model is asked."""
    choose("metric family", arguments.family, FAMILIES)
    if not arguments.stages:
        raise UserError("stages: names no stage; give stage -> judge, e.g. {deepnote/init_note: reference}")
    if len(arguments.top_k_range) != 2 or not 1 <= arguments.top_k_range[0] <= arguments.top_k_range[1]:
        raise UserError(f"top_k_range: {arguments.top_k_range} is not [least, most] with 1 <= least <= most")
    if not 0 <= arguments.dev_share < 1:
        raise UserError(f"dev_share: {arguments.dev_share} is not in [0, 1)")
    judges = {stage: (name, choose(f"judge for {stage}", name, JUDGES)) for stage, name in arguments.stages.items()}
    for stage, (name, _) in judges.items():
        if stage not in JUDGED_STAGES[name]:
            raise UserError(f"stages: {name} cannot judge {stage!r}; it judges: {', '.join(JUDGED_STAGES[name])}")
    methods = {}
    for name in dict.fromkeys(stage.split("/")[0] for stage in arguments.stages):
        options = arguments.method_options.get(name, {})
        methods[name] = (prepare(name, options), options)
    if unused := set(arguments.method_options) - set(methods):
        raise UserError(f"method_options: {sorted(unused)[0]!r} is not the method of any stage in stages")
    if strangers := set(arguments.gold_stages) - set(arguments.stages):
        raise UserError(f"gold_stages: {sorted(strangers)[0]!r} is not among the stages")
    if strangers := set(arguments.quotas) - set(arguments.stages):
        raise UserError(f"quotas: {sorted(strangers)[0]!r} is not among the stages")
    for stage, quota in arguments.quotas.items():
        if not isinstance(quota, int) or quota < 1:
            raise UserError(f"quotas: {stage}: {quota!r} is not a number of pairs above 0")
    for stage in arguments.gold_stages:
        choose("stage with gold evidence", stage, GOLD)
    samplers = tuple(itertools.product(arguments.temperatures, arguments.top_ps))
    for stage in arguments.stages:
        if len(samplers) + (stage in arguments.gold_stages) < 2:
            raise UserError(
                f"temperatures x top_ps: {len(samplers)} sampling(s) leave {stage} without two candidates; give more"
            )
    return (
        Recipe(judges, samplers, frozenset(arguments.gold_stages), arguments.min_gap, arguments.family, arguments.seed),
        methods,
    )


async def _roll_out(
    arguments: Arguments,
    models: ModelArguments,
    roles: Any,
    recipe: Recipe,
    methods: dict[str, tuple[Method, dict[str, Any]]],
    questions: list[Question],
    journal: Path,
) -> None:
    async with open_resources(models, roles, arguments.index) as resources:

        async def work(question: Question) -> dict[str, Any]:
            return await roll_out(question, resources, recipe, methods, tuple(arguments.top_k_range))

        await for_each_question(questions, work, journal, concurrency=models.concurrency, description="rolling out")


async def roll_out(
    question: Question,
    resources: Resources,
    recipe: Recipe,
    methods: dict[str, tuple[Method, dict[str, Any]]],
    top_k_range: tuple[int, ...],
) -> dict[str, Any]:
    """Run every method on one question in the sampling rollout.

    Returns a JSON-ready record: `question_id`, `rows` (pairs), `drops` (stage and reason), `traces`.
    """
    harvest = Harvest()
    traces = []
    # DNAlign varies top-k so that prompts differ in length (the authors' code: uniform in 3..9).
    top_k = random.Random(f"{recipe.seed} {question.id} top_k").randint(*top_k_range)
    for name, (method, options) in methods.items():
        options = {"top_k": top_k} | options if retrieves(method) else options
        rollout = SamplingRollout(question, name, resources, recipe, harvest, options.get("top_k"))
        try:
            rollout.trace.answer = await method(question.question, rollout, **options)
        except RequestRefused as refusal:
            rollout.trace.error = str(refusal)
            # The endpoint's words, which the trace keeps, would make every refusal a reason of its own.
            harvest.drops.append({"stage": f"{name}/*", "reason": "the endpoint refused the request"})
        traces.append(rollout.trace.to_dict())
    return {"question_id": question.id, "rows": harvest.rows, "drops": harvest.drops, "traces": traces}


def _finish(
    arguments: Arguments, folder: Path, journal: Path, questions: list[Question], config: dict[str, Any]
) -> dict[str, Any]:
    """Write train.parquet, dev.parquet (if it has pairs) and stats.json from the journal, in the questions' order."""
    dev = dev_questions(questions, arguments.dev_share, arguments.seed)
    counts = write_splits(folder, COLUMNS, lambda: _rows(arguments, journal, questions), dev)

    by_stage: dict[str, Counter[str]] = {stage: Counter() for stage in arguments.stages}
    tokens: Counter[str] = Counter()
    for record in _within_quotas(arguments.quotas, finished(journal, questions)):
        for row in record["rows"]:
            by_stage[row["stage"]]["pairs"] += 1
        for drop in record["drops"]:
            by_stage.setdefault(drop["stage"], Counter())[drop["reason"]] += 1
        for trace in record["traces"]:
            for step in trace["steps"]:
                if step["kind"] == "generate":
                    tokens["prompt_tokens"] += step["completion"]["prompt_tokens"]
                    tokens["completion_tokens"] += step["completion"]["completion_tokens"]
    stats = {
        "schema": "notewriter/pairs-stats/1",
        "questions": len(questions),
        "pairs": counts,
        "stages": {
            stage: {"pairs": count["pairs"], "dropped": {key: count[key] for key in sorted(count) if key != "pairs"}}
            for stage, count in by_stage.items()
        },
        "tokens_of_the_completions_gone_on_with": dict(tokens),
        "judges": arguments.stages,
        "config_hash": config_hash(config),
        "version": __version__,
    }
    jsonl.write_text(folder / "stats.json", [json.dumps(stats, indent=2, ensure_ascii=False) + "\n"])
    return stats


def _rows(arguments: Arguments, journal: Path, questions: list[Question]) -> Iterator[dict[str, Any]]:
    for record in _within_quotas(arguments.quotas, finished(journal, questions)):
        yield from (row | {"dataset": arguments.dataset} for row in record["rows"])


def _within_quotas(quotas: dict[str, int], records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records with the pairs beyond a stage's quota moved to the drops."""
    kept: Counter[str] = Counter()
    for record in records:
        rows = []
        for row in record["rows"]:
            stage = row["stage"]
            if kept[stage] < quotas.get(stage, kept[stage] + 1):
                kept[stage] += 1
                rows.append(row)
            else:
                record["drops"].append({"stage": stage, "reason": "beyond the quota"})
        yield record | {"rows": rows}


def _summary(stats: dict[str, Any], folder: Path) -> str:
    lines = [f"{stats['pairs']['train']} training and {stats['pairs']['dev']} development pairs in {folder}"]
    for stage, yielded in stats["stages"].items():
        dropped = ", ".join(f"{count} {reason}" for reason, count in yielded["dropped"].items()) or "none dropped"
        lines.append(f"  {stage}: {yielded['pairs']} pairs; {dropped}")
    return "\n".join(lines) + "\n"
