"""The tables of a retrieval evaluation, as Markdown and as an HTML page."""

from pathlib import Path

from notewriter.evaluation.comparison import p_value_text
from notewriter.evaluation.report.markup import Table
from notewriter.evaluation.retrieval.results import Results
from notewriter.pages import write_page


def tables(results: Results) -> list[Table]:
    """Quality, differences from the first chain, speed and size, and what each part of a chain took."""
    chains, questions = results["chains"], results["questions"]
    first, *others = chains
    names = list(chains[first]["measures"])
    found: list[Table] = [
        (
            f"Supporting passages found, {results['dataset']}, {questions} questions; mean [95% interval]",
            ["chain", *names],
            [[name, *(chain["measures"][each].text() for each in names)] for name, chain in chains.items()],
        )
    ]
    if others:
        found.append(
            (
                f"Difference from {first}, paired by question; * marks intervals that exclude zero",
                ["chain", "measure", "difference [95% interval]", "p (Holm)"],
                [
                    [
                        name,
                        measure,
                        row["difference"].text(sign="+") + (" *" if row["difference"].excludes_zero else ""),
                        p_value_text(measure, row["p_value"]),
                    ]
                    for name in others
                    for measure, row in results["differences"][name].items()
                ],
            )
        )
    latencies = list(chains[first]["milliseconds"])
    found.append(
        (
            "Speed and size; latency of one query at a time, throughput of many at once",
            ["chain", *(f"{each} (ms)" for each in latencies), "queries/s", "at once", "on disk (MB)", "memory (MB)"],
            [
                [
                    name,
                    *(f"{chain['milliseconds'][each]:,.2f}" for each in latencies),
                    f"{chain['load']['queries_per_second']:,.1f}",
                    str(chain["load"]["concurrency"]),
                    f"{chain['load']['size'] / 1e6:,.1f}",
                    "" if (memory := chain["load"]["memory"]) is None else f"{memory / 1e6:,.1f}",
                ]
                for name, chain in chains.items()
            ],
        )
    )
    parts = [
        [name, part["part"], f"{part['milliseconds']:,.2f}", f"{part['found']:,.1f}"]
        for name, chain in chains.items()
        for part in chain["parts"]
    ]
    if parts:
        found.append(("What each part took; mean per query", ["chain", "part", "ms", "passages returned"], parts))
    return found


def write_html(path: Path, results: Results) -> None:
    """Write the tables as one self-contained page; names are escaped.

    Raises:
        UserError: the file cannot be written.
    """
    write_page(path, Path(__file__).with_name("retrieval.html.jinja"), {}, results=results, tables=tables(results))
