"""One HTML page for any number of runs: scores, differences, plots, and every question's trace."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MinLen

from eval.accounting import COUNTED
from eval.report import plots, tables
from eval.report.markup import TABLE, latex, markdown
from eval.report.questions import index, questions_of, words
from eval.report.runs import read_runs
from eval.report.scores import headline
from eval.report.traces import CHUNK, pack
from eval.scores import metric_named
from notewriter import jsonl
from notewriter.config import parse
from notewriter.errors import UserError
from notewriter.pages import packed, write_page

logger = logging.getLogger(__name__)

ROOM_FOR_TABLES = 300_000
"""Characters of the page that are neither list, search nor trace."""


@dataclass
class Arguments:
    """What to put into the report, and where."""

    runs: Annotated[list[str], MinLen(1)] = field(
        metadata={
            "help": "run folders that `evaluate` wrote; the first is the baseline that the others are held against"
        }
    )
    output: str = field(
        default="report.html", metadata={"help": "the HTML file to write; it needs no other file and no network"}
    )
    markdown: str | None = field(
        default=None, metadata={"help": "also write the tables of scores and of differences into this Markdown file"}
    )
    latex: str | None = field(
        default=None, metadata={"help": "also write them into this file as LaTeX (it needs the package booktabs)"}
    )
    max_megabytes: Annotated[int, Interval(ge=1)] = field(
        default=30,
        metadata={
            "help": "where the page would be larger, prompts are left out, those of each run's last traces first"
        },
    )


def main(argv: list[str]) -> None:
    """The `report` command."""
    (arguments,) = parse(
        Arguments,
        argv,
        prog="notewriter report",
        description="Write one HTML page about any number of runs: scores, differences from the first, every trace.",
    )
    output = Path(arguments.output)
    written = write_report([Path(run) for run in arguments.runs], output, arguments.max_megabytes)
    for path, rendered in ((arguments.markdown, markdown), (arguments.latex, latex)):
        if path:
            jsonl.write_text(path, [rendered(written)])
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def write_report(folders: Sequence[Path], output: Path, max_megabytes: int = 30) -> list[TABLE]:
    """Write one self-contained HTML page about run folders; the first is the baseline.

    The list of questions, what the search looks into and the traces are embedded as compressed blocks, of which the
    page unpacks what is needed, so that memory and the page grow with the compressed size alone. Prompts are left
    out, those of each run's last traces first, where they would make the page larger than `max_megabytes`.

    Model text is escaped in the tables and embedded as JSON for the trace viewer, whose script puts it
    on the page as text only. The page's own policy forbids it any network request.

    Returns:
        The tables of scores and of differences.

    Raises:
        UserError: no run, a run named twice, files in a run that are missing or malformed, or an
            output that cannot be written.
    """
    if not folders:
        raise UserError("--runs names no folder; give at least one that `notewriter evaluate` wrote")
    runs = read_runs(folders)
    limit = max_megabytes * 1_000_000
    traces = pack(runs, limit)
    questions = questions_of(runs)
    blocks = {
        "index": packed(index(runs, questions, traces)),
        "vocabulary": packed(traces.vocabulary.words),
        "words": packed(words(runs, questions)),
    }
    fitting, whole = traces.fitting(limit - ROOM_FOR_TABLES - sum(map(len, blocks.values())))
    if whole < len(fitting):
        logger.warning(
            "the page holds the prompts of about %d of %d traces; a larger --max_megabytes holds more",
            whole * CHUNK,
            sum(map(len, traces.places)),
        )
    differences = tables.differences(runs)
    scores, costs = tables.scores(runs), tables.costs(runs)
    write_page(
        output,
        Path(__file__).with_name("report.html.jinja"),
        blocks | {f"traces-{number}": block for number, block in enumerate(fitting)},
        runs=runs,
        metric_named=metric_named,
        scores=scores,
        costs=costs,
        differences=differences,
        interval_plot=plots.interval_plot(runs),
        headline=headline(runs),
        scatter_plots=plots.scatter_plots(runs),
        kinds=tables.kinds(runs),
        counted=COUNTED,
        published=tables.published(runs),
    )
    return tables.text_tables(runs, scores + costs, differences)
