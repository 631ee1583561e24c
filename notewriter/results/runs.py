"""Run folders in memory, as the report needs them, and the scores that they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from notewriter.artifacts.costs import Costs, read_costs
from notewriter.artifacts.judgements import FOLDER
from notewriter.artifacts.metrics import Metrics, read_metrics
from notewriter.artifacts.predictions import Prediction, read_predictions
from notewriter.artifacts.reading import check_present, read_text
from notewriter.evaluation.catalogue import HEADLINE, metric_named
from notewriter.ground.errors import UserError
from notewriter.pages.charts import COLOURS
from notewriter.pages.tables import Cell
from notewriter.rollouts.replies import in_words


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, without its traces.

    Args:
        folder: its path.
        label: what the report calls it.
        number: its place among the runs, which decides its colour.
        metrics: metrics.json.
        config: config.yaml, as text.
        costs: costs.json; None where it is missing.
        judging: what judging the run cost; None where it was not judged.
        predictions: by question id.
    """

    folder: Path
    label: str
    number: int
    metrics: Metrics
    config: str
    costs: Costs | None
    judging: Costs | None
    predictions: dict[str, Prediction]

    @property
    def colour(self) -> str:
        """Its colour in charts, as CSS."""
        return COLOURS[self.number % len(COLOURS)]

    @property
    def cut(self) -> str:
        """How many of its replies were cut, and at which stages; empty where they were not counted."""
        cut = self.metrics.cut
        if cut is None:
            return ""
        total = sum(each["cut"] for each in cut.values())
        said = f"{total:,} of {sum(each['replies'] for each in cut.values()):,} cut"
        return f"{said}: {in_words(cut)}" if total else said

    @property
    def name(self) -> Cell:
        """Its label, on a page after a dot of its colour."""
        dot = Markup('<span class="dot" style="--run: {}"></span>{}')
        return Cell(self.label, dot.format(self.colour, self.label))


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run folders; each is labelled with its name, or with its folder where two have the same name.

    Raises:
        UserError: a folder given twice, or files that are missing or malformed.
    """
    metrics = [read_metrics(folder / "metrics.json") for folder in folders]
    names = [each.name for each in metrics]
    labels = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label}: given twice in --runs; give each run once")
    for folder in folders:
        check_present(folder / "traces.jsonl")
    return [
        Run(
            folder=folder,
            label=label,
            number=number,
            metrics=metrics[number],
            config=read_text(folder / "config.yaml"),
            costs=read_costs(folder / "costs.json"),
            judging=read_costs(folder / FOLDER / "costs.json"),
            predictions=read_predictions(folder / "predictions.jsonl"),
        )
        for number, (folder, label) in enumerate(zip(folders, labels, strict=True))
    ]


def measured(runs: Sequence[Run]) -> list[str]:
    """The metrics that any run has, in the order in which they appear."""
    return list(dict.fromkeys(metric for run in runs for metric in run.metrics.metrics))


def shares(runs: Sequence[Run]) -> list[str]:
    """The metrics whose values lie in [0, 1] for every question of every run."""
    return [
        metric
        for metric in measured(runs)
        if metric_named(metric).better is not None
        and all(0 <= each.scores.get(metric, 0) <= 1 for run in runs for each in run.predictions.values())
    ]


def headline(runs: Sequence[Run]) -> str | None:
    """The first score of `HEADLINE` that a run has, else the first share; None without any."""
    candidates = shares(runs)
    return next((metric for metric in (*HEADLINE, *candidates) if metric in candidates), None)
