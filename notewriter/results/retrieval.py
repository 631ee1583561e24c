"""The results of chains of retrievers: quality, differences from the first chain, latency."""

from notewriter.artifacts.retrieval import RetrievalResults
from notewriter.pages.tables import Table
from notewriter.results.compare import compare_scores, corrected
from notewriter.results.tables import comparison_table


def retrieval_tables(results: RetrievalResults) -> list[Table]:
    """Quality, differences from the first chain, latency, and the time of each part of a chain.

    p-values are corrected for all differences together.
    """
    chains = results.chains
    first, *others = chains
    names, latencies = list(chains[first].measures), list(chains[first].milliseconds)
    compared = corrected(
        [
            {each: compare_scores([chains[first].scores[each]], [chains[name].scores[each]]) for each in names}
            for name in others
        ]
    )
    differences = [
        (f"{name}, {measure}", measure, paired)
        for name, rows in zip(others, compared, strict=True)
        for measure, paired in rows.items()
    ]
    quality = [[name, *(chain.measures[each].text() for each in names)] for name, chain in chains.items()]
    speed = [[name, *(f"{chain.milliseconds[each]:,.2f}" for each in latencies)] for name, chain in chains.items()]
    parts = [
        [f"{name}, {part.part}", f"{part.milliseconds:,.2f}", f"{part.found:,.1f}"]
        for name, chain in chains.items()
        for part in chain.parts
    ]
    tables: list[Table] = [
        (
            f"Supporting passages found, {results.dataset}, {results.questions} questions; mean [95% interval]",
            ["chain", *names],
            quality,
        ),
        comparison_table(f"Difference from {first}, paired by question", differences, (first, "chain")),
        ("Latency of one query at a time", ["chain", *(f"{each} (ms)" for each in latencies)], speed),
        ("What each part took; mean per query", ["chain, part", "ms", "passages returned"], parts),
    ]
    return [table for table in tables if table[2]]
