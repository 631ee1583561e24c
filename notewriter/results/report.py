"""`notewriter report`: one HTML page about any number of runs: scores, differences from the first, every trace.

    notewriter report --runs runs/base runs/dpo --output report.html
    notewriter report --runs runs/base runs/dpo --worth --choose_on runs/train

Besides runs it shows what else `evaluate` writes: the folder of `--checkpoints`, with its curves, and of `--chains`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MinLen
from markupsafe import Markup

from notewriter.artifacts import best_checkpoint, retrieval
from notewriter.artifacts.predictions import COSTS
from notewriter.evaluation.catalogue import metric_named
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.options import defaults, option
from notewriter.models.roles import ModelArguments
from notewriter.pages import packed
from notewriter.results.checkpoints import curves
from notewriter.results.measures import measured
from notewriter.results.page import Plot, Section, write, write_latex, write_markdown
from notewriter.results.retrieval import retrieval_tables
from notewriter.results.runs import Run, read_runs
from notewriter.results.sections import sections_of
from notewriter.results.traces import CHUNK, index, pack, questions_of, words
from notewriter.results.worth import WorthArguments, worth_section

logger = logging.getLogger(__name__)

TITLE = "Notewriter report"

ROOM_FOR_TABLES = 300_000
"""Characters of the page that are neither list, search index nor traces."""


@dataclass
class ReportArguments:
    """The options of `notewriter report`: runs, and the page's file."""

    runs: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "folders that `evaluate` wrote; the first run is the baseline for all others"}
    )
    output: str = option("report.html", "the HTML file to write; it needs no other file and no network")
    markdown: str | None = option(
        None, "also write the tables of scores and differences to this Markdown file, plots beside it"
    )
    latex: str | None = option(None, "also write these tables to this file as LaTeX (needs the package booktabs)")
    max_megabytes: Annotated[int, Interval(ge=1)] = option(
        30,
        "maximum size of the page in megabytes; beyond it prompts are left out, those of each run's last traces first",
    )


def main(argv: list[str]) -> None:
    """Write the report, and its tables as text."""
    arguments, worth, models = parse(
        [ReportArguments, WorthArguments, ModelArguments], argv, prog="notewriter report", description=__doc__
    )
    values, usual = vars(worth) | vars(models), defaults(WorthArguments, ModelArguments)
    given = [name for name, value in usual.items() if values[name] != value]
    if given and not worth.worth:
        raise UserError(f"{given[0]} is an option of --worth; add --worth, or leave it out")
    output = Path(arguments.output)
    sections = write_report([Path(run) for run in arguments.runs], output, arguments.max_megabytes, worth, models)
    if arguments.markdown:
        write_markdown(Path(arguments.markdown), TITLE, [], sections)
    if arguments.latex:
        write_latex(Path(arguments.latex), sections)
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def write_report(
    folders: Sequence[Path],
    output: Path,
    max_megabytes: int = 30,
    worth: WorthArguments | None = None,
    models: ModelArguments | None = None,
) -> list[Section]:
    """Write one self-contained HTML page about run folders; the first is the baseline.

    The list of questions, the search index and the traces are embedded as compressed blocks that the page unpacks on
    demand, so memory and page size grow with the compressed size alone. Where the page would exceed `max_megabytes`,
    prompts are left out, those of each run's last traces first.

    Model text is escaped in the tables, and embedded as JSON for the trace viewer, whose script inserts it as text
    only. The page's content security policy forbids all network requests.

    Args:
        folders: of runs, of evaluated checkpoints, of evaluated chains of retrievers.
        output: the file.
        max_megabytes: the size of the page, in millions of characters.
        worth: the options for the worth of notes.
        models: the reader of the notes, if they name one.

    Returns:
        The sections of the page.

    Raises:
        UserError: no run, a run given twice, files of a run that are missing or malformed, or an output that cannot
            be written.
    """
    if not folders:
        raise UserError("--runs is empty; give at least one folder that `notewriter evaluate` wrote")
    of_runs: list[Path] = []
    others: list[Section] = []
    for folder in folders:
        if (folder / best_checkpoint.NAME).is_file():
            best = best_checkpoint.BEST_CHECKPOINT.read(folder / best_checkpoint.NAME)
            of_runs += [folder / Path(each.checkpoint).name for each in best.checkpoints]
            title = f"Checkpoints in {folder}: the best is {Path(best.checkpoint).name}, {best.score.text()}"
            name = f"checkpoints-{len(others)}"
            others.append(Section(name, title, [Plot(name, curves(folder))]))
        elif (folder / retrieval.NAME).is_file():
            tables = retrieval_tables(retrieval.RETRIEVAL.read(folder / retrieval.NAME))
            others.append(Section(f"retrieval-{len(others)}", f"Retrieval in {folder}", tables))
        else:
            of_runs.append(folder)
    runs = read_runs(of_runs)
    verdicts, sections = sections_of(runs) if runs else ([], [])
    sections += others
    if worth and worth.worth:
        sections.append(worth_section(runs, worth, models or ModelArguments(), output.parent))
    intro = [*(Markup("<b>{}</b>").format(each) for each in verdicts), *_intro(runs)]
    write(output, TITLE, intro, sections, _viewer(runs, max_megabytes * 1_000_000) if runs else None)
    return sections


def _intro(runs: Sequence[Run]) -> list[str]:
    """The guide to the page, with the meanings of scores and costs."""
    intro = ["Ranges are 95% bootstrap intervals over the questions."]
    if len(runs) > 1:
        intro[0] += (
            f" Differences are against {runs[0].label}. ▲ and ▼ mark values that are higher or lower, where the "
            "interval excludes zero and p is at most 0.05: green is better, red is worse, counts are neutral."
        )
    meanings = {metric.label: metric.meaning for metric in map(metric_named, (*measured(runs), *COSTS))}
    listed = Markup("").join(
        Markup("<dt>{}</dt><dd>{}</dd>").format(*each) for each in meanings.items() if runs and each[1]
    )
    what = Markup('<details><summary>What the scores and costs mean</summary><dl class="meanings">{}</dl></details>')
    return [*intro, *([what.format(listed)] if listed else [])]


def _viewer(runs: Sequence[Run], limit: int) -> dict[str, str]:
    """The data of the viewer of questions and traces, in at most `limit` characters with the tables."""
    traces, questions = pack(runs, limit), questions_of(runs)
    blocks = {"index": packed(index(runs, questions, traces)), "words": packed(words(runs, questions))}
    fitting, whole = traces.fitting(limit - ROOM_FOR_TABLES - sum(map(len, blocks.values())))
    if whole < len(fitting):
        logger.warning(
            "the page contains the prompts of about %d of %d traces; raise --max_megabytes for more",
            whole * CHUNK,
            sum(map(len, traces.places)),
        )
    return blocks | {f"traces-{number}": block for number, block in enumerate(fitting)}
