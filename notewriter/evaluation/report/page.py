"""The report: one HTML page with scores, differences, plots and traces of any number of runs."""

import logging
from collections.abc import Sequence
from pathlib import Path

from notewriter.artifacts.costs import COUNTED
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.report import plots, tables
from notewriter.evaluation.report.headline import headline
from notewriter.evaluation.report.markup import Table
from notewriter.evaluation.report.questions import index, questions_of, words
from notewriter.evaluation.report.runs import read_runs
from notewriter.evaluation.report.traces import CHUNK, pack
from notewriter.ground.errors import UserError
from notewriter.pages import packed, write_page

logger = logging.getLogger(__name__)

ROOM_FOR_TABLES = 300_000
"""Characters of the page that are neither list, search index nor traces."""


def write_report(folders: Sequence[Path], output: Path, max_megabytes: int = 30) -> list[Table]:
    """Write one self-contained HTML page about run folders; the first is the baseline.

    The list of questions, the search index and the traces are embedded as compressed blocks that the page unpacks on
    demand, so memory and page size grow with the compressed size alone. Where the page would exceed `max_megabytes`,
    prompts are left out, those of each run's last traces first.

    Model text is escaped in the tables, and embedded as JSON for the trace viewer, whose script inserts it as text
    only. The page's content security policy forbids all network requests.

    Returns:
        The tables of scores and of differences.

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
        "vocabulary": packed(traces.vocabulary.words),
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
