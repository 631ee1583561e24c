"""`notewriter retrieval-eval`: measure how many supporting passages chains of retrievers find, and how fast."""

import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen
from tqdm import tqdm

from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.ground import jsonl, typed
from notewriter.ground.config import command_line, parse
from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.options import kinds_in
from notewriter.ground.records import Question
from notewriter.pages.tables import markdown
from notewriter.results.retrieval import Searched, read_searches, results_of, tables
from notewriter.retrieval.chain import Chain, Part, parts_of
from notewriter.rollouts.identity import open_run

logger = logging.getLogger(__name__)

SEARCHES = "searches.jsonl"


@dataclass(kw_only=True)
class RetrievalEvalArguments(QuestionArguments):
    """The chains, and how deep they are searched."""

    chains: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "name -> parts of a chain of retrievers; the first is compared with all others, e.g. "
            "{bm25: [{index: A}], both: [{index: A}, {index: B}]}. Instead of index and retriever, which name one",
            "of": "retriever",
            "names": kinds_in,
        },
    )
    top_k: Annotated[list[Annotated[int, Interval(ge=1, le=10_000)]], MinLen(1)] = field(
        default_factory=lambda: [2, 5, 10], metadata={"help": "the depths at which recall and nDCG are measured"}
    )


def main(argv: list[str]) -> None:
    """Search and measure; running the command again resumes it.

    Raises:
        UserError: no question has supporting passages, a chain is not valid or cannot be searched, or the folder
            contains another run.
    """
    (arguments,) = parse(
        RetrievalEvalArguments,
        argv,
        prog="notewriter retrieval-eval",
        description="Measure recall, MRR, nDCG and latency of chains of retrievers on a benchmark.",
    )
    chains = read_chains(arguments)
    depths = sorted(set(arguments.top_k))
    questions = [question for question in load_selected(arguments) if question.supporting_ids]
    if not questions:
        raise UserError(
            f"{arguments.path}: no question names its supporting passages; choose a dataset that does, such as "
            "hotpotqa, 2wikimultihopqa, musique or a jsonl file with supporting_ids"
        )
    config = asdict(arguments) | {"chains": chains}
    command = command_line("notewriter retrieval-eval", argv)
    with open_run(arguments.output_dir, config, questions, [RetrievalEvalArguments], command) as folder:
        with jsonl.Journal(folder / SEARCHES):  # makes it, and removes a last line that a kill has cut
            pass
        for name, parts in chains.items():
            run_async(search_all(name, parts, questions, folder / SEARCHES, top_k=depths[-1]))
        results = results_of(folder, arguments.dataset, list(chains), questions, depths)
        jsonl.write_text(folder / "retrieval.json", [json.dumps(results.to_json(), indent=2) + "\n"])
        text = markdown(tables(results))
        jsonl.write_text(folder / "retrieval.md", [text])
    deepest = f"recall@{max(depths)}"
    for name, chain in results.chains.items():
        if not chain["measures"][deepest].mean:
            logger.warning("%s: finds no supporting passage; are its ids those of the questions' supporting_ids?", name)
    sys.stdout.write(text)


async def search_all(
    name: str, parts: Sequence[Part], questions: Sequence[Question], path: Path, *, top_k: int
) -> None:
    """Append what is missing of a chain's searches to a journal, one search at a time, so that each has its latency.

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
                line = Searched(chain=name, question_id=question.id, passages=ids, seconds=seconds, parts=result.parts)
                journal.append(dict(line))
    finally:
        await chain.close()


def read_chains(arguments: RetrievalEvalArguments) -> dict[str, list[Part]]:
    """The chains by name, checked.

    Raises:
        UserError: there is none, or one is not valid.
    """
    single = parts_of(arguments.index, arguments.retriever)
    if bool(single) == bool(arguments.chains):
        raise UserError("give --index or --retriever for one retriever, or --chains for several by name")
    chains: dict[str, list[Part]] = {"retriever": single} if single else {}
    for name, parts in arguments.chains.items():
        parts = [parts] if isinstance(parts, dict) else parts
        typed.read(parts, list[dict[str, Any]], f"chains: {name}", "write a list of parts such as [{index: PATH}]")
        try:
            chains[name] = parts_of(None, parts)
        except UserError as error:
            raise UserError(f"chains: {name}: {error}") from error
        if not parts:
            raise UserError(f"chains: {name}: is empty; add a part such as {{index: PATH}}")
    return chains
