"""`notewriter report`: one HTML page about any number of runs."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Interval, MinLen

from notewriter.evaluation.report.markup import latex, markdown
from notewriter.evaluation.report.page import write_report
from notewriter.ground import jsonl
from notewriter.ground.config import parse

logger = logging.getLogger(__name__)


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
    (arguments,) = parse(
        ReportArguments,
        argv,
        prog="notewriter report",
        description="Write one HTML page about any number of runs: scores, differences from the first, every trace.",
    )
    output = Path(arguments.output)
    tables = write_report([Path(run) for run in arguments.runs], output, arguments.max_megabytes)
    for path, rendered in ((arguments.markdown, markdown), (arguments.latex, latex)):
        if path:
            jsonl.write_text(path, [rendered(tables)])
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)
