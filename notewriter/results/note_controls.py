"""Each cell's notes beside notes without a model, at as many words (`notewriter.evaluation.controls`)."""

from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.controls import SENTENCES, SHOWN
from notewriter.ground.errors import UserError
from notewriter.pages.tables import Table, markdown
from notewriter.results.compare import Comparison, Paired
from notewriter.results.experiment import Experiment
from notewriter.results.without_a_model import against_controls

FACTS, ANSWER, WORDS = "note_fact_recall", "note_has_answer", "note_words"


def without_a_model(experiment: Experiment) -> str:
    """The section of a page that shows facts in notes; empty for other pages and before the first run."""
    if FACTS not in experiment.metrics:
        return ""
    tables: list[Table] = []
    missing: list[str] = []
    for name, title in experiment.sets.items():
        beside: dict[str, dict[str, Comparison]] = {}
        for cell in experiment.cells:
            try:
                beside[cell] = against_controls([*experiment.runs[cell, name].values()])
            except UserError as error:
                missing.append(f"- {cell}, {title}: not shown; {error}")
        tables += [
            (
                f"{metric_named(metric).label} ({metric}), {title}",
                ["cell", "words", "the cell's notes", *SHOWN],
                rows,
            )
            for metric in (FACTS, ANSWER)
            if (rows := [_row(cell, against, metric) for cell, against in beside.items() if _has(against, metric)])
        ]
    if not tables and not missing:
        return ""
    rules = "; ".join(f"`{name}`: {SENTENCES[name]}" for name in SHOWN)
    parts = [
        "Sentences of the passages that each cell retrieved, cut at as many words as its note of the question; "
        f"{rules}. In brackets the cell's notes minus these, paired by question, with the 95% interval over the "
        "questions. More words hold more facts whoever wrote them, so this is the comparison at equal words.",
        markdown(tables),
        "\n".join(missing),
    ]
    return "\n\n".join(filter(None, parts))


def _has(against: dict[str, Comparison], metric: str) -> bool:
    return bool(against) and all(metric in comparison for comparison in against.values())


def _row(cell: str, against: dict[str, Comparison], metric: str) -> list[str]:
    first = next(iter(against.values()))
    return [
        cell,
        f"{first[WORDS].after:.{metric_named(WORDS).decimals}f}",
        f"{first[metric].after:.{metric_named(metric).decimals}f}",
        *(_shown(comparison[metric], metric_named(metric).decimals) for comparison in against.values()),
    ]


def _shown(paired: Paired, places: int) -> str:
    return f"{paired.before:.{places}f} ({paired.difference.text(places, '+')})"
