"""Chains of retrievers over the questions of a benchmark: how many supporting passages they find, and how fast.

`notewriter evaluate --chains ...` does this in place of running a method; `notewriter report` shows the folder.
"""

import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from annotated_types import Interval, MinLen
from tqdm import tqdm

from notewriter.artifacts.retrieval import NAME, RETRIEVAL, ChainResult, PartSeconds, RetrievalResults
from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.evaluation.evaluating import EvaluateArguments
from notewriter.evaluation.evidence import has_name
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground import jsonl, typed
from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.lazy import Lazy
from notewriter.ground.options import kinds_in
from notewriter.ground.records import Passage, Question, SearchPart
from notewriter.ground.text import places_of
from notewriter.models.roles import ModelArguments
from notewriter.retrieval.chain import Chain, Part, parts_of
from notewriter.rollouts.identity import open_run

if TYPE_CHECKING:
    import numpy as np
else:
    np = Lazy("numpy")

logger = logging.getLogger(__name__)

SEARCHES = "searches.jsonl"

PERCENTILES = (50, 95, 99)


@dataclass
class RetrieversArguments:
    """Measure chains of retrievers instead of a method."""

    chains: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "measure retrieval alone, without a model: name -> parts of a chain of retrievers, in place of "
            "index and retriever; the first is compared with all others, e.g. {bm25: [{index: A}], both: [{index: A}, "
            "{index: B}]}",
            "of": "retriever",
            "names": kinds_in,
        },
    )
    depths: Annotated[list[Annotated[int, Interval(ge=1, le=10_000)]], MinLen(1)] = field(
        default_factory=lambda: [2, 5, 10],
        metadata={"help": "chains: the depths at which recall and nDCG are measured"},
    )


class SearchRecord(TypedDict):
    """A line of searches.jsonl: the passages that a chain found for a question, and the seconds it took."""

    chain: str
    question_id: str
    passages: list[str]
    seconds: float
    parts: list[SearchPart]
    gold: NotRequired[list[str]]
    """What `_gold` returns; absent in lines of versions that took the supporting ids as they are."""


def read_searches(path: Path) -> dict[tuple[str, str], SearchRecord]:
    """Chain and question id -> the search.

    Raises:
        UserError: a line is not a search.
    """
    remedy = "remove the line and run the same command again"
    lines = (
        typed.read(record, SearchRecord, f"{path}:{number}", remedy)
        for number, record in jsonl.read(path, journal=True)
    )
    return {(line["chain"], line["question_id"]): line for line in lines}


def evaluate_chains(
    arguments: EvaluateArguments, models: ModelArguments, wanted: RetrieversArguments, command: Sequence[str]
) -> RetrievalResults:
    """Search and measure; doing it again in the same folder resumes it.

    Raises:
        UserError: a model or another retriever is named too, no question has supporting passages, a chain is not valid
            or cannot be searched, or the folder contains another run.
    """
    given = [name for name in ("index", "retriever") if getattr(arguments, name)]
    given += [name for name in ("serve", "base_url", "models") if getattr(models, name)]
    if given:
        raise UserError(f"both chains and {given[0]} are set; give only one of them")
    chains = read_chains(wanted.chains)
    depths = sorted(set(wanted.depths))
    arguments, selected = load_selected(arguments)
    questions = [question for question in selected if question.supporting_ids or question.supporting_facts]
    if not questions:
        raise UserError(
            f"{arguments.path}: no question names its supporting passages or facts; choose a dataset that does, such "
            "as hotpotqa, 2wikimultihopqa, musique or a jsonl file with supporting_ids or supporting_facts"
        )
    config = {each.name: getattr(arguments, each.name) for each in fields(QuestionArguments)}
    config |= {"chains": chains, "depths": wanted.depths}
    kinds = [EvaluateArguments, RetrieversArguments]
    with open_run(arguments.output_dir, config, questions, kinds, command) as folder:
        with jsonl.Journal(folder / SEARCHES):  # makes it, and removes a last line that a kill has cut
            pass
        for name, parts in chains.items():
            run_async(search_all(name, parts, questions, folder / SEARCHES, top_k=depths[-1]))
        results = results_of(folder, arguments.dataset, list(chains), questions, depths)
        RETRIEVAL.write(folder / NAME, results)
    deepest = f"recall@{max(depths)}"
    for name, chain in results.chains.items():
        if not chain.measures[deepest].mean:
            logger.warning("%s: finds no supporting passage; are its ids those of the questions' supporting_ids?", name)
    return results


def read_chains(given: Mapping[str, Any]) -> dict[str, list[Part]]:
    """The chains by name, checked.

    Raises:
        UserError: one is not valid.
    """
    chains: dict[str, list[Part]] = {}
    for name, parts in given.items():
        parts = [parts] if isinstance(parts, dict) else parts
        typed.read(parts, list[dict[str, Any]], f"chains: {name}", "write a list of parts such as [{index: PATH}]")
        try:
            chains[name] = parts_of(None, parts)
        except UserError as error:
            raise UserError(f"chains: {name}: {error}") from error
        if not parts:
            raise UserError(f"chains: {name}: is empty; add a part such as {{index: PATH}}")
    return chains


async def search_all(
    name: str, parts: Sequence[Part], questions: Sequence[Question], path: Path, *, top_k: int
) -> None:
    """Append the missing searches of a chain to a journal, one at a time, so that each has its latency.

    Raises:
        UserError: the chain cannot be opened, or a search fails.
    """
    done = {question_id for chain, question_id in read_searches(path) if chain == name}
    waiting = [question for question in questions if question.id not in done]
    if not waiting:
        return
    # Without a cache of a reranking model's replies, which would take no time the second time.
    chain = Chain(parts)
    try:
        await chain.check()
        # Opens files and loads what is loaded lazily.
        await chain.search(questions[0].question, top_k, chain.scope_of(questions[0]))
        bar = tqdm(waiting, desc=name, unit="question", total=len(questions), initial=len(questions) - len(waiting))
        with jsonl.Journal(path) as journal, bar:
            for question in bar:
                start = time.perf_counter()
                result = await chain.search(question.question, top_k, chain.scope_of(question))
                seconds = round(time.perf_counter() - start, 6)
                ids = [passage.id for passage in result.passages]
                line = SearchRecord(
                    chain=name,
                    question_id=question.id,
                    passages=ids,
                    seconds=seconds,
                    parts=result.parts,
                    gold=_gold(question, result.passages),
                )
                journal.append(dict(line))
    finally:
        await chain.close()


def _gold(question: Question, passages: Sequence[Passage]) -> list[str]:
    """The ids of the supporting passages, told as in an evaluation (`evidence.supporting_recall`).

    They are the first passages with each supporting id, or with it as title, or without ids those that hold each fact.
    An id or fact that no passage has stands for its passage.
    """

    def is_meant(evidence: str, passage: Passage) -> bool:
        if question.supporting_ids:
            return has_name(passage, evidence)
        return bool(places_of([evidence], [passage.text]))

    wanted = question.supporting_ids or question.supporting_facts
    ids = [next((passage.id for passage in passages if is_meant(each, passage)), each) for each in wanted]
    return list(dict.fromkeys(ids))


def results_of(
    folder: Path, dataset: str, chains: Sequence[str], questions: Sequence[Question], depths: Sequence[int]
) -> RetrievalResults:
    """The results of the searches in a run folder.

    Raises:
        UserError: a journal is damaged.
    """
    searches = read_searches(folder / SEARCHES)
    results: dict[str, ChainResult] = {}
    for name in chains:
        of_chain = [searches[name, question.id] for question in questions]
        rows = [
            measures(search["passages"], search.get("gold", question.supporting_ids), depths)
            for search, question in zip(of_chain, questions, strict=True)
        ]
        scores = {measure: [row[measure] for row in rows] for measure in rows[0]}
        seconds = [search["seconds"] for search in of_chain]
        results[name] = ChainResult(
            measures={measure: bootstrap_interval(values) for measure, values in scores.items()},
            scores=scores,
            milliseconds={
                **{f"p{share}": round(1000 * float(np.percentile(seconds, share)), 3) for share in PERCENTILES},
                "mean": round(1000 * float(np.mean(seconds)), 3),
            },
            parts=_parts(of_chain),
        )
    return RetrievalResults(dataset, len(questions), results)


def _parts(searches: Sequence[SearchRecord]) -> list[PartSeconds]:
    return [
        PartSeconds(
            part=part["part"],
            milliseconds=round(1000 * float(np.mean([each["parts"][place]["seconds"] for each in searches])), 3),
            found=round(float(np.mean([each["parts"][place]["found"] for each in searches])), 1),
        )
        for place, part in enumerate(searches[0]["parts"])
    ]


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """The share of the gold passages among the first `k`."""
    return len(set(ranking[:k]) & set(gold)) / len(set(gold))


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """1 / rank of the first gold passage; 0 if there is none (Voorhees, TREC-8 question answering track, 1999)."""
    return next((1 / rank for rank, id in enumerate(ranking, start=1) if id in gold), 0.0)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain at `k`, with the discount 1 / log2(1 + rank).

    Jaervelin and Kekaelaeinen (TOIS 2002) in the form of trec_eval: divided by the gain of a ranking that has the gold
    passages first.
    """
    distinct = dict.fromkeys(ranking[:k])
    gain = sum(1 / math.log2(1 + rank) for rank, id in enumerate(distinct, start=1) if id in gold)
    return gain / sum(1 / math.log2(1 + rank) for rank in range(1, min(len(set(gold)), k) + 1))


def measures(ranking: Sequence[str], gold: Collection[str], depths: Sequence[int]) -> dict[str, float]:
    """All measures of a ranking (binary relevance), which is as deep as the last of the depths."""
    return {
        **{f"recall@{k}": recall(ranking, gold, k) for k in depths},
        f"MRR@{max(depths)}": reciprocal_rank(ranking[: max(depths)], gold),
        **{f"nDCG@{k}": ndcg(ranking, gold, k) for k in depths},
    }
