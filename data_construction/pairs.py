"""`notewriter pairs`: questions become preference pairs, by running methods in the sampling rollout (DNAlign)."""

import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from data_construction.card import PAIRS, write_card
from data_construction.gold import GOLD
from data_construction.hygiene import question_stats, usual_pair_lengths, within_lengths
from data_construction.judges import JUDGES, Judge
from data_construction.pairs_format import COLUMNS
from data_construction.pairs_stats import STATS_SCHEMA, pairs_stats
from data_construction.quotas import Quotas, within_quotas
from data_construction.sampling import Harvest, HarvestRecord, Recipe, SamplingRollout
from data_construction.selection import Selection, SelectionArguments, clean_selection
from data_construction.splits import JOURNAL, SHARDS, dev_questions, write_splits
from eval.metrics import FAMILIES, check_family
from notewriter import __version__, jsonl
from notewriter.artifacts.run_folder import (
    ResumeArguments,
    check_journal,
    config_hash,
    defaults,
    drop_errors,
    finished,
    open_run,
    parse_shard,
    shard_of,
    tell_errors,
)
from notewriter.benchmarks import BENCHMARKS
from notewriter.config import choose, parse
from notewriter.errors import UserError
from notewriter.method import Method
from notewriter.methods import MOST, STAGES, check_index, prepare, stage_named
from notewriter.models.roles import ModelArguments, check_sampling
from notewriter.records import Question, Sampling
from notewriter.rollouts.loop import run_questions
from notewriter.rollouts.rehearsal import PricedDryRunArguments, estimate, estimated
from notewriter.rollouts.resources import Resources, check_inputs
from notewriter.typecheck import misfit

RECORD = HarvestRecord
"""What a line of the journal holds."""


@dataclass(kw_only=True)
class Arguments(SelectionArguments):
    """What is rolled out, which stages are trained, and who judges them."""

    stages: dict[str, Any] = field(
        metadata={
            "help": "stage -> judge, or judges of which each further one breaks the ties of those before it, e.g. "
            "{deepnote/init_note: [outcome, llm], vanilla/answer: metric}; the methods named by the stages are run. "
            f"Judges: {', '.join(JUDGES)}"
        },
    )
    method_options: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata={"help": "method -> its options, e.g. {deepnote: {max_step: 1, max_failure: 1}}"}
    )
    top_k_range: list[Annotated[int, Interval(ge=1, le=MOST)]] = field(
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
            f"for weak teachers. Possible at: {', '.join(name for name, stage in STAGES.items() if stage.kind in GOLD)}"
        },
    )
    quotas: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "stage -> at most so many pairs are kept, those of the first questions; a stage that has them is "
            "no longer sampled, and when all have theirs the work ends. A shard has its part of each and knows nothing "
            "of the others' pairs: merged shards have as many pairs as one run, mostly of the same questions, but not "
            "the very same ones; without quotas they are the same to the byte"
        },
    )
    quota_block: Annotated[int, Interval(ge=1)] = field(
        default=128,
        metadata={
            "help": "quotas are looked at between blocks of so many questions, so that the same pairs come out of "
            "every run; at least half of concurrency, or the server waits"
        },
    )
    judge_orders: Annotated[int, Interval(ge=1, le=2)] = field(
        default=2,
        metadata={"help": "in how many orders llm sees the candidates: 2 keeps what it names both times, 1 is DNAlign"},
    )
    min_gap: float = field(default=0.0, metadata={"help": "smallest difference of scores that makes a pair"})
    family: str | None = field(
        default=None,
        metadata={"help": f"metric family that answers are scored with; default: the dataset's. {', '.join(FAMILIES)}"},
    )


def main(argv: list[str]) -> None:
    """Build pairs; what exists already in the output folder is not done again."""
    arguments, models, resume, dry = parse(
        [Arguments, ModelArguments, ResumeArguments, PricedDryRunArguments],
        argv,
        prog="notewriter pairs",
        description=__doc__,
    )
    recipe, methods = _prepare(arguments)
    check_inputs(models, arguments.index)
    selection = clean_selection(arguments)
    members = shard_of(selection.questions, arguments.shard)
    if dry.dry_run:
        work = partial(roll_out, recipe=recipe, methods=methods, top_k_range=tuple(arguments.top_k_range))
        estimate(dry, models, arguments.index, members, work, Path(arguments.output_dir), dry.prices)
        return
    config = asdict(arguments) | asdict(models)
    with open_run(arguments.output_dir, config, selection.questions, defaults(arguments, models)) as folder:
        journal = folder / JOURNAL
        check_journal(journal, RECORD)
        if resume.retry_errors:
            drop_errors(journal)
        quotas = quotas_of(arguments, members, journal)
        if quotas.to_do():
            _roll_out(arguments, models, recipe, methods, members, quotas, journal)
        stats = finish(arguments, folder, selection, config)
        tell_errors(journal, members)
    sys.stdout.write(summary(stats, folder))


def shares(arguments: Arguments) -> dict[str, int]:
    """The quotas, or a shard's parts of them; the parts of all shards add up."""
    number, count = parse_shard(arguments.shard)
    return {stage: quota // count + (number <= quota % count) for stage, quota in arguments.quotas.items()}


def quotas_of(arguments: Arguments, questions: list[Question], journal: Path) -> Quotas:
    """The quotas, or a shard's parts of them, with what the journal holds already."""
    quotas = Quotas(list(arguments.stages), shares(arguments), questions, arguments.quota_block)
    for record in finished(journal, questions):
        quotas.add(record)
    return quotas


def to_do(arguments: Arguments, questions: list[Question], journal: Path) -> int:
    """How many questions a run or a shard has still to roll out."""
    return quotas_of(arguments, questions, journal).to_do()


def _prepare(arguments: Arguments) -> tuple[Recipe, dict[str, tuple[Method, dict[str, Any]]]]:
    """Everything that can be wrong in the configuration is found here, before any model is asked."""
    arguments.family = arguments.family or choose("dataset", arguments.dataset, BENCHMARKS).family
    check_family(arguments.family)
    if not arguments.stages:
        raise UserError("stages: names no stage; give stage -> judge, e.g. {deepnote/init_note: reference}")
    if len(arguments.top_k_range) != 2 or not 1 <= arguments.top_k_range[0] <= arguments.top_k_range[1]:
        raise UserError(f"top_k_range: {arguments.top_k_range} is not [least, most] with 1 <= least <= most")
    judges = {stage: _judges(stage, names) for stage, names in arguments.stages.items()}
    methods = {}
    for name in dict.fromkeys(stage.split("/")[0] for stage in arguments.stages):
        options = arguments.method_options.get(name, {})
        methods[name] = (prepare(name, options), options)
        check_index(methods[name][0], arguments.index)
    if unused := set(arguments.method_options) - set(methods):
        raise UserError(f"method_options: {sorted(unused)[0]!r} is not the method of any stage in stages")
    if strangers := set(arguments.gold_stages) - set(arguments.stages):
        raise UserError(f"gold_stages: {sorted(strangers)[0]!r} is not among the stages")
    if strangers := set(arguments.quotas) - set(arguments.stages):
        raise UserError(f"quotas: {sorted(strangers)[0]!r} is not among the stages")
    for stage, quota in arguments.quotas.items():
        if type(quota) is not int or quota < 1:
            raise UserError(f"quotas: {stage}: {quota!r} is not a number of pairs above 0")
    for stage in arguments.gold_stages:
        choose("stage with gold evidence", stage, {name: each for name, each in STAGES.items() if each.kind in GOLD})
    samplers = tuple(itertools.product(arguments.temperatures, arguments.top_ps))
    for temperature, top_p in samplers:
        check_sampling(Sampling(temperature, top_p), "temperatures x top_ps")
    for stage in arguments.stages:
        if len(samplers) + (stage in arguments.gold_stages) < 2:
            raise UserError(
                f"temperatures x top_ps: {len(samplers)} sampling(s) leave {stage} without two candidates; give more"
            )
    recipe = Recipe(
        judges=judges,
        samplers=samplers,
        gold_stages=frozenset(arguments.gold_stages),
        orders=arguments.judge_orders,
        min_gap=arguments.min_gap,
        family=arguments.family,
        seed=arguments.seed,
    )
    return recipe, methods


def _judges(stage: str, names: Any) -> list[tuple[str, Judge]]:
    """A stage's judges, in the order in which they are asked; each has to understand what the stage's candidates are.

    Raises:
        UserError: there is no such stage or judge, or the judge understands other kinds alone.
    """
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names or misfit(names, list[str]):
        raise UserError(f"stages: {stage}: {names!r} names no judge; give one, or a list to be asked in order")
    kind = stage_named(stage).kind
    for name in names:
        choose(f"judge for {stage}", name, JUDGES)
        kinds = JUDGES[name].kinds
        if kind not in kinds:
            others = [other for other, entry in JUDGES.items() if kind in entry.kinds]
            raise UserError(
                f"stages: {name} judges candidates of kind {' or '.join(kinds)}, and {stage} gives a {kind}; "
                f"its judges are: {', '.join(others)}"
            )
    return [(name, JUDGES[name].judge) for name in names]


def _roll_out(
    arguments: Arguments,
    models: ModelArguments,
    recipe: Recipe,
    methods: dict[str, tuple[Method, dict[str, Any]]],
    questions: list[Question],
    quotas: Quotas,
    journal: Path,
) -> None:
    async def work(question: Question, resources: Resources) -> dict[str, Any] | None:
        stages = await quotas.open_stages(question)
        if not stages:
            return None
        judges = {stage: recipe.judges[stage] for stage in stages}
        record = await roll_out(
            question, resources, replace(recipe, judges=judges), methods, tuple(arguments.top_k_range)
        )
        quotas.add(record)
        return record

    run_questions(
        models,
        arguments.index,
        questions,
        work,
        journal,
        description="rolling out",
        count=lambda record: Counter(row["stage"] for row in record["rows"]),
    )


async def roll_out(
    question: Question,
    resources: Resources,
    recipe: Recipe,
    methods: dict[str, tuple[Method, dict[str, Any]]],
    top_k_range: tuple[int, ...],
) -> dict[str, Any]:
    """Run the methods of the recipe's stages on one question in the sampling rollout.

    Returns a JSON-ready record: `question_id`, what `Harvest.to_dict` tells, and `traces`.
    """
    harvest = Harvest()
    traces = []
    # DNAlign varies top-k so that prompts differ in length (the authors' code: uniform in 3..9).
    top_k = random.Random(f"{recipe.seed} {question.id} top_k").randint(*top_k_range)
    for name in dict.fromkeys(stage.split("/")[0] for stage in recipe.judges):
        method, options = methods[name]
        options = {"top_k": top_k} | options if method.retrieves else options
        rollout = SamplingRollout(question, method, options, resources, recipe, harvest)
        await rollout.run()
        traces.append(rollout.trace.to_dict())
    return {"question_id": question.id, **harvest.to_dict(), "traces": traces}


def finish(arguments: Arguments, folder: Path, selection: Selection, config: dict[str, Any]) -> dict[str, Any]:
    """Write the pairs in the questions' order (dev.parquet if it has any), stats.json, and the card with its plots."""
    journal, questions = folder / JOURNAL, shard_of(selection.questions, arguments.shard)
    jsonl.write(folder / "dropped_questions.jsonl", (drop.to_dict() for drop in selection.drops))
    usual = usual_pair_lengths(row for record in finished(journal, questions) for row in record["rows"])

    def records() -> Iterator[dict[str, Any]]:
        return within_quotas(shares(arguments), within_lengths(usual, finished(journal, questions)))

    def rows() -> Iterator[dict[str, Any]]:
        return (row | {"dataset": arguments.dataset} for record in records() for row in record["rows"])

    # Of all questions, so that every shard makes the same split.
    dev = dev_questions(selection.questions, arguments.dev_share, arguments.seed)
    counts = write_splits(folder, COLUMNS, rows, dev)
    stages = arguments.stages
    stats = {
        "schema": STATS_SCHEMA,
        "questions": len(questions),
        "pairs": counts,
        **pairs_stats(records(), stages),
        **quota_stats(folder, shares(arguments)),
        **estimated(folder),
        "hygiene": question_stats(selection.drops, selection.evaluation),
        "judges": {stage: ", ".join([names] if isinstance(names, str) else names) for stage, names in stages.items()},
        "config_hash": config_hash(config),
        "version": __version__,
    }
    jsonl.write_text(folder / "stats.json", [json.dumps(stats, indent=2, ensure_ascii=False) + "\n"])
    write_card(folder, config, stats, PAIRS)
    return stats


def quota_stats(folder: Path, quotas: dict[str, int]) -> dict[str, Any]:
    """What stats.json says of quotas, where there are any: how many pairs, and in how many shards they were kept."""
    if not quotas:
        return {}
    shards = folder / SHARDS
    kept_in = jsonl.read_object(shards, dict[str, int], "remove it").get("shards", 1) if shards.exists() else 1
    return {"quotas": quotas, "quotas_kept_in_shards": kept_in}


def summary(stats: dict[str, Any], folder: Path) -> str:
    """What was built, a line a stage."""
    lines = [f"{stats['pairs']['train']} training and {stats['pairs']['dev']} development pairs in {folder}"]
    lines += [f"  {count} left out: {reason}" for reason, count in stats["hygiene"]["questions_dropped"].items()]
    for stage, yielded in stats["stages"].items():
        dropped = ", ".join(f"{count} {reason}" for reason, count in yielded["dropped"].items())
        dropped = dropped or ("none dropped" if yielded["pairs"] else "no prompt of this stage came up")
        lines.append(f"  {stage}: {yielded['pairs']} pairs; {dropped}")
        if count := stats["agreement"].get(stage):
            lines.append(f"    the judge named the same in both orders {count['agreed']} times of {count['asked']}")
        if count := stats["unreadable_judge_replies"].get(stage):
            lines.append(f"    {count} replies of the judge could not be read")
        if yielded["pairs"] < (quota := stats.get("quotas", {}).get(stage, 0)):
            lines.append(f"    short of its quota of {quota}")
    if (shards := stats.get("quotas_kept_in_shards", 1)) > 1:
        lines.append(
            f"  quotas were kept in {shards} shards, each its part: as many pairs as one run keeps, not the very same"
        )
    return "\n".join(lines) + "\n"
