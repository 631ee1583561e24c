"""The cost of a table: calls and tokens from a rehearsal of every cell, GPU hours and money from these."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from tqdm import tqdm

from notewriter.artifacts.traces import Trace
from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.evaluating import OPTIONS, Evaluation, checked
from notewriter.evaluation.evidence import reference_of
from notewriter.evaluation.judgements import JUDGEMENTS, Answered
from notewriter.evaluation.steps import chain_of
from notewriter.ground.options import names_of
from notewriter.ground.records import Passage, Question
from notewriter.methods import METHODS, prepare, with_style
from notewriter.models.prices import cost
from notewriter.pages.tables import Table
from notewriter.results.paper_table import SEARCHED, Evaluated, PaperTable
from notewriter.results.table_file import Corpus
from notewriter.retrieval.chain import parts_of
from notewriter.retrieval.protocol import OpenSource, Scope, Source, SourceOptions
from notewriter.rollouts.rehearsal import DryRunArguments, rehearse
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout
from notewriter.training.cost.operations import PEAK_TFLOPS

PEAK = PEAK_TFLOPS["A100"] * 1e12
"""bfloat16 operations per second of an A100."""

PREFILL, DECODE = 0.45, 0.10
"""The shares of the peak at which prompts are read and replies written, with many requests in flight.

Assumed, not measured: an 8B model reads 8,800 tokens and writes 1,950 tokens per second and GPU.
"""

REPLACED = names_of(*OPTIONS, of="questions") | SEARCHED
"""The options that name files, which stand-ins replace."""

QUESTION_WORDS = 20
SOME_QUESTIONS = 1_000
"""The assumed number of questions of a set without a published number."""

MANY = 1_000
ALL_WORDS = 40_000
"""Tokens of a question's documents, for a method that reads all (ReaRAG, section 4.1: 48,000 to 58,000 tokens)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInOptions(SourceOptions):
    """Made-up passages, where there is no index yet.

    `words`: the length of a passage; `most`: how many there are at most, however many are asked for.
    """

    words: Annotated[int, Interval(ge=1)]
    most: Annotated[int, Interval(ge=1)]


class StandIn(OpenSource):
    """Passages of one length, whatever the query."""

    def __init__(self, options: StandInOptions) -> None:
        self.name, self.corpus, self._options = "stand-in", "stand-in", options

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """As many as are asked for and there are."""
        text = " ".join(["of"] * self._options.words)
        # Other passages for other queries: methods leave out what they have read.
        names = (f"{query} {number}" for number in range(min(top_k, self._options.most)))
        return [Passage(id=name, title="Page", text=text) for name in names]


words = Source(options=StandInOptions, open=StandIn)

PASSAGES = f"{__name__}:words"
"""The name of the part of a retriever that finds them."""


@dataclass(frozen=True)
class CellCost:
    """The cost of a cell, all its samples together; `gpu_hours` and `money` are 0 where they are unknown."""

    name: str
    questions: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    gpu_hours: float
    money: float


def gpu_seconds(prompt_tokens: float, completion_tokens: float, billions: float) -> float:
    """Seconds of one A100 for a model of that size: two operations a parameter and token, at the assumed shares."""
    operations = 2e9 * billions
    return operations * (prompt_tokens / PREFILL + completion_tokens / DECODE) / PEAK


def cost_of(
    table: PaperTable, cells: Sequence[Evaluated], dry: DryRunArguments, *, stand_ins: bool = False
) -> dict[str, CellCost]:
    """The cost of each distinct cell by its folder, whether it lacks a checkpoint or not.

    Where the question file has fewer questions than the paper took, the cost is that of the paper's number.

    Args:
        table: the table.
        cells: those of its cells whose costs are wanted.
        dry: how they are rehearsed.
        stand_ins: whether a made-up question and passages stand in for the files, which need not be there.

    Raises:
        UserError: a question file or an index is missing.
    """
    distinct = {cell.folder: cell for cell in cells}
    return {
        folder: _cost(table, cell, dry, _stand_in(table, cell) if stand_ins else _real(table, cell))
        for folder, cell in tqdm(distinct.items(), desc="rehearsing", unit="cell", leave=False)
    }


def _real(table: PaperTable, cell: Evaluated) -> tuple[Evaluation, int]:
    """A cell's evaluation with its files, and the number of questions that it counts for."""
    declared = cell.options.get("limit")
    evaluation = checked(*cell.arguments(next(iter(cell.folders.values())), table.output / "cache.sqlite"))
    return evaluation, max(declared or 0, len(evaluation.questions))


def _stand_in(table: PaperTable, cell: Evaluated) -> tuple[Evaluation, int]:
    """A cell's evaluation with a question of the usual length and passages of the corpus's usual length."""
    options = {key: each for key, each in cell.options.items() if key not in REPLACED}
    if METHODS[options["method"]].retrieves:
        corpus = table.file.corpora[cell.searched.corpus] if cell.searched else Corpus()
        words = corpus.read or corpus.words
        reads_all = any("documents" in part for part in cell.options.get("retriever") or [])
        options["retriever"] = [{PASSAGES: words, "most": round(ALL_WORDS / words) if reads_all else MANY}]
    arguments, models, costs = replace(cell, options=options | {"path": "none"}).arguments(Path("none"), Path("none"))
    method = prepare(arguments.method, arguments.method_options)
    benchmark = BENCHMARKS[arguments.dataset]
    styled = with_style(arguments.method, arguments.method_options, benchmark)
    question = Question(id="stand-in", question=" ".join(["which"] * QUESTION_WORDS), answers=("one",))
    evaluation = Evaluation(
        replace(arguments, method_options=styled),
        models,
        costs,
        method,
        arguments.family or benchmark.family,
        parts_of(None, arguments.retriever),
        [question],
    )
    return evaluation, _questions(cell)


def _questions(cell: Evaluated) -> int:
    """How many questions a cell has: its limit, or all of the published file."""
    split = cell.options.get("split")
    source = BENCHMARKS[cell.options["dataset"]].source
    files = [file for file in source.files if file.split and split in (None, file.split)] if source else []
    limits = [each for each in (cell.options.get("limit"), files[0].rows if files else None) if each]
    return min(limits, default=SOME_QUESTIONS)


def _cost(table: PaperTable, cell: Evaluated, dry: DryRunArguments, rehearsed: tuple[Evaluation, int]) -> CellCost:
    evaluation, questions = rehearsed

    async def work(question: Question, resources: Resources) -> dict[str, Any]:
        """A question's trace, followed by the calls of the judge."""
        record = await evaluation.work(question, resources)
        trace = Trace.from_dict(record)
        asked, chain, reference = question.question, chain_of(trace), reference_of(trace, question.question)
        for name in cell.judge.judgements if cell.judge else ():
            rollout = Rollout(question, name, resources)
            case = Answered(asked, question.answers, trace.answer, chain, reference, rollout.generate)
            await JUDGEMENTS[name].judge(case)
            record["steps"] += rollout.trace.to_dict()["steps"]
        return record

    # The tokenizer of a served model may not be here, and its tokens differ little from those of others.
    models = replace(evaluation.models, serve=None)
    estimate = rehearse(dry, models, evaluation.parts, evaluation.questions, work, {})
    scale = table.file.samples * questions / len(evaluation.questions)
    hours = money = 0.0
    for stage, roles in estimate["tokens"].items():
        plays = cell.judge.plays if cell.judge and stage.startswith("judge/") else cell.plays
        for role, usage in roles.items():
            tokens = usage["prompt_tokens"], usage["completion_tokens"]
            hours += scale * gpu_seconds(*tokens, plays.billions_of(role) or 0) / 3600
            money += scale * cost({"policy": plays.prices}, "policy", *tokens) if plays.prices else 0
    total = estimate["tokens_in_all"]
    keys = ("calls", "prompt_tokens", "completion_tokens")
    calls, read, written = (round(scale * total.get(key, 0)) for key in keys)
    return CellCost(cell.name, questions, calls, read, written, hours, money)


def cost_table(costs: Sequence[CellCost], gpus: int) -> Table:
    """The costs as a table: a row a cell, and the sum; its caption has the assumptions."""
    sums = [sum(values) for values in zip(*(astuple(cost)[1:] for cost in costs), strict=True)]
    hours = sum(cost.gpu_hours for cost in costs) / gpus
    caption = (
        f"{hours:,.1f} hours on {gpus} A100s, at {PREFILL:.0%} of their peak for prompts and {DECODE:.0%} for replies "
        "(assumed), without prefix caches and the start of servers; loops run to their limits"
    )
    header = ["cell", "questions", "calls", "prompt tokens", "completion tokens", "GPU hours", "money"]
    rows = [astuple(cost) for cost in costs] + [("all cells", *sums)]
    texts = [[row[0], *(f"{each:,}" for each in row[1:5]), *(f"{each:,.2f}" for each in row[5:])] for row in rows]
    return caption, header, texts
