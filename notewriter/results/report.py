"""`notewriter report`: one HTML page about any number of runs: scores, differences from the first, every trace."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MinLen

from notewriter.artifacts.predictions import COSTS
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.controls import SENTENCES, SHOWN
from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.pages import packed, write_page
from notewriter.pages.tables import Table, html, latex, markdown
from notewriter.results import tables
from notewriter.results.measures import headline, measured
from notewriter.results.runs import read_runs
from notewriter.results.traces import CHUNK, index, pack, questions_of, words

logger = logging.getLogger(__name__)

ROOM_FOR_TABLES = 300_000
"""Characters of the page that are neither list, search index nor traces."""


@dataclass
class ReportArguments:
    """What the report is about, and where it is written."""

    runs: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "run folders that `evaluate` wrote; the first is the baseline for all others"}
    )
    output: str = field(
        default="report.html", metadata={"help": "the HTML file to write; it needs no other file and no network"}
    )
    markdown: str | None = field(
        default=None, metadata={"help": "also write the tables of scores and differences to this Markdown file"}
    )
    latex: str | None = field(
        default=None, metadata={"help": "also write them to this file as LaTeX (needs the package booktabs)"}
    )
    max_megabytes: Annotated[int, Interval(ge=1)] = field(
        default=30,
        metadata={
            "help": "where the page would be larger, prompts are left out, those of each run's last traces first"
        },
    )


def main(argv: list[str]) -> None:
    """Write the report, and its tables as text."""
    (arguments,) = parse(ReportArguments, argv, prog="notewriter report", description=__doc__)
    output = Path(arguments.output)
    written = write_report([Path(run) for run in arguments.runs], output, arguments.max_megabytes)
    for path, rendered in ((arguments.markdown, markdown), (arguments.latex, latex)):
        if path:
            jsonl.write_text(path, [rendered(written)])
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def write_report(folders: Sequence[Path], output: Path, max_megabytes: int = 30) -> list[Table]:
    """Write one self-contained HTML page about run folders; the first is the baseline.

    The list of questions, the search index and the traces are embedded as compressed blocks that the page unpacks on
    demand, so memory and page size grow with the compressed size alone. Where the page would exceed `max_megabytes`,
    prompts are left out, those of each run's last traces first.

    Model text is escaped in the tables, and embedded as JSON for the trace viewer, whose script inserts it as text
    only. The page's content security policy forbids all network requests.

    Returns:
        The tables of scores, of differences and of what no model wrote.

    Raises:
        UserError: no run, a run given twice, files of a run that are missing or malformed, or an output that cannot
            be written.
    """
    if not folders:
        raise UserError("--runs is empty; give at least one folder that `notewriter evaluate` wrote")
    runs = read_runs(folders)
    limit = max_megabytes * 1_000_000
    traces = pack(runs, limit)
    questions = questions_of(runs)
    blocks = {
        "index": packed(index(runs, questions, traces)),
        "words": packed(words(runs, questions)),
    }
    fitting, whole = traces.fitting(limit - ROOM_FOR_TABLES - sum(map(len, blocks.values())))
    if whole < len(fitting):
        logger.warning(
            "the page contains the prompts of about %d of %d traces; raise --max_megabytes for more",
            whole * CHUNK,
            sum(map(len, traces.places)),
        )
    differences = tables.differences(runs)
    scores = tables.scores(runs, differences)
    without_a_model = tables.without_a_model(runs)
    difference_tables = [tables.difference_table(each, runs) for each in differences]
    write_page(
        output,
        Path(__file__).with_name("report.html.jinja"),
        blocks | {f"traces-{number}": block for number, block in enumerate(fitting)},
        html=html,
        runs=runs,
        meanings={metric_named(each).label: metric_named(each).meaning for each in (*measured(runs), *COSTS)},
        scores=scores,
        differences=list(zip(differences, difference_tables, strict=True)),
        interval_chart=tables.interval_chart(runs),
        headline=metric_named(headline(runs) or ""),
        expense_chart=tables.expense_chart(runs),
        without_a_model=without_a_model,
        shown=SHOWN,
        sentences=SENTENCES,
        kinds=tables.kinds(runs),
        stage_costs=tables.stage_costs(runs),
    )
    return [scores, *difference_tables, *without_a_model]
