"""`notewriter retrieval-eval`: measure how many supporting passages chains of retrievers find, and how fast."""

import asyncio
import json
import logging
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.evaluation.retrieval.results import results_of, tables
from notewriter.evaluation.retrieval.searching import search_all
from notewriter.ground import jsonl, typed
from notewriter.ground.config import command_line, parse
from notewriter.ground.errors import UserError
from notewriter.pages import write_page
from notewriter.pages.tables import html, markdown
from notewriter.retrieval.chain import Part, parts_of
from notewriter.rollouts.identity import open_run

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class RetrievalEvalArguments(QuestionArguments):
    """The chains, and how they are searched."""

    chains: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "name -> parts of a chain of retrievers; the first is compared with all others, e.g. "
            "{bm25: [{index: A}], both: [{index: A}, {index: B}]}. Instead of index and retriever, which name one",
            "of": "retriever",
        },
    )
    top_k: Annotated[list[Annotated[int, Interval(ge=1, le=10_000)]], MinLen(1)] = field(
        default_factory=lambda: [2, 5, 10], metadata={"help": "the depths at which recall and nDCG are measured"}
    )
    concurrency: Annotated[int, Interval(ge=1)] = field(
        default=64, metadata={"help": "queries at once when throughput is measured", "effect": False}
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
        description="Measure recall, MRR, nDCG, latency and throughput of chains of retrievers on a benchmark.",
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
        for name in ("searches.jsonl", "loads.jsonl"):
            with jsonl.Journal(folder / name):  # makes it, and removes a last line that a kill has cut
                pass
        for name, parts in chains.items():
            search = search_all(name, parts, questions, folder, top_k=depths[-1], concurrency=arguments.concurrency)
            asyncio.run(search)
        results = results_of(folder, arguments.dataset, list(chains), questions, depths)
        jsonl.write_text(folder / "retrieval.json", [json.dumps(results.to_json(), indent=2) + "\n"])
        written = tables(results)
        text = markdown(written)
        jsonl.write_text(folder / "retrieval.md", [text])
        template = Path(__file__).with_name("retrieval.html.jinja")
        write_page(folder / "retrieval.html", template, {}, results=results, tables=written, html=html)
    deepest = f"recall@{max(depths)}"
    for name, chain in results.chains.items():
        if not chain["measures"][deepest].mean:
            logger.warning("%s: finds no supporting passage; are its ids those of the questions' supporting_ids?", name)
    sys.stdout.write(f"{text}\n{folder}/retrieval.html: the same as a page\n")


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
