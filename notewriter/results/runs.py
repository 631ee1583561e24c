"""A finished run as tables and pages read it, from its folder or published notes, and the cells of runs of a grid."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from notewriter.artifacts.costs import Costs, read_costs
from notewriter.artifacts.judgements import FOLDER
from notewriter.artifacts.metrics import Metrics, read_metrics
from notewriter.artifacts.predictions import Prediction, read_predictions
from notewriter.artifacts.reading import check_present, read_text
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.traces import Generation, read_traces
from notewriter.evaluation.controls import Reading, readings
from notewriter.evaluation.next_search import Noted, scores_of, searched_again
from notewriter.evaluation.notes import names_subjects
from notewriter.evaluation.scoring import is_right
from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.models.prices import Prices, cost, prices_of
from notewriter.pages.charts import COLOURS
from notewriter.pages.tables import Marked
from notewriter.rollouts.replies import in_words


@dataclass(frozen=True)
class Run:
    """A finished run. Its files are read when they are first needed, and once.

    Attributes:
        folder: its folder, which may be gone if it was published.
        label: its name on a page.
        number: its place on a page, which decides its colour.
        published: its predictions by question id, of a run that is read from published notes; None: of its folder.
        scored_by: the metric family of a published run.
    """

    folder: Path
    label: str = ""
    number: int = 0
    published: Mapping[str, Prediction] | None = None
    scored_by: str = ""

    @functools.cached_property
    def metrics(self) -> Metrics:
        """metrics.json."""
        return read_metrics(self.folder / "metrics.json")

    @functools.cached_property
    def predictions(self) -> Mapping[str, Prediction]:
        """Predictions by question id; the costs of a published run are not known."""
        return read_predictions(self.folder / "predictions.jsonl") if self.published is None else self.published

    @functools.cached_property
    def family(self) -> str:
        """The metric family that scored its answers."""
        return self.scored_by or self.metrics.family

    @functools.cached_property
    def config(self) -> str:
        """config.yaml as text."""
        return read_text(self.folder / CONFIG)

    @functools.cached_property
    def costs(self) -> Costs | None:
        """costs.json; None where it is missing."""
        return read_costs(self.folder / "costs.json")

    @functools.cached_property
    def judging(self) -> Costs | None:
        """The cost of judging the run; None where it was not judged."""
        return read_costs(self.folder / FOLDER / "costs.json")

    @functools.cached_property
    def calls(self) -> Mapping[str, list[Generation]]:
        """The model calls by question id."""
        return {trace.question_id: trace.generations for trace in read_traces(self.folder / "traces.jsonl")}

    @functools.cached_property
    def readings(self) -> list[Reading]:
        """Its questions with the passages found and the notes written (`evaluation.controls.readings`).

        Raises:
            UserError: the run's questions or index are no longer at hand.
        """
        return readings(self.folder)

    @functools.cached_property
    def next_search(self) -> Mapping[str, Mapping[str, float]]:
        """The scores of a further search with the note, by question id (`evaluation.next_search`).

        Raises:
            UserError: the run's questions or index are no longer at hand.
        """
        return run_async(self._searched()) if self.readings else {}

    @functools.cached_property
    def subjects(self) -> Mapping[str, Mapping[str, float]]:
        """Whether its notes name their subjects, by question id (`evaluation.notes.names_subjects`).

        Raises:
            UserError: the run's questions or index are no longer at hand.
        """
        return {each.question.id: names_subjects(each.note, list(each.passages)) for each in self.readings}

    async def _searched(self) -> dict[str, dict[str, float]]:
        noted = [Noted(each.question, each.passages, each.note) for each in self.readings]
        async with searched_again(self.folder) as retriever:
            return await scores_of(noted, retriever)

    @functools.cached_property
    def prices(self) -> Prices:
        """Of its models; empty where it names none."""
        config = read_config(self.folder)
        return prices_of(config.get("prices") or {}, config.get("models") or {})

    @functools.cached_property
    def searches(self) -> bool:
        """Whether it searched for any question whose gold documents are known."""
        return any(each.gold_documents and each.retrievals for each in self.predictions.values())

    @property
    def colour(self) -> str:
        """Its colour in charts, as CSS."""
        return COLOURS[self.number % len(COLOURS)]

    @property
    def name(self) -> Marked:
        """Its label, on a page after a dot of its colour."""
        dot = Markup('<span class="dot" style="--run: {}"></span>{}')
        return Marked(self.label, dot.format(self.colour, self.label))

    @property
    def cut(self) -> str:
        """The number of its cut replies, by stage; empty where they were not counted."""
        cut = self.metrics.cut
        if cut is None:
            return ""
        total = sum(each["cut"] for each in cut.values())
        said = f"{total:,} of {sum(each['replies'] for each in cut.values()):,} cut"
        return f"{said}: {in_words(cut)}" if total else said

    def tokens(self, kind: str, of: Prediction, *, notes: bool) -> int:
        """A question's tokens of the note-taker, or of all other models."""
        calls = [call for call in self.calls.get(of.question_id, []) if (call.role == "notes") == notes]
        return sum(getattr(call.completion, kind) for call in calls)

    def seconds(self, of: Prediction) -> float:
        """The seconds of a question's model calls, added up."""
        return sum(call.completion.seconds for call in self.calls.get(of.question_id, []))

    def money(self, of: Prediction) -> float | None:
        """The price of a question's tokens; None without prices."""
        calls = [(call.role, call.completion) for call in self.calls.get(of.question_id, [])]
        spent = (cost(self.prices, role, each.prompt_tokens, each.completion_tokens) for role, each in calls)
        return sum(spent) if self.prices else None

    def fewer_searches(self, of: Prediction) -> bool | None:
        """Whether a right answer has fewer searches than gold documents (`scoring.fewer_searches`)."""
        counts = self.searches and of.gold_documents and is_right(of)
        return of.retrievals < of.gold_documents if counts else None


Runs = Mapping[int | None, Run]
"""Seed -> the run of a cell; the seed is None for a cell without seeds."""


@dataclass(frozen=True)
class Cell:
    """A row's runs in a column of a grid: one evaluation run, or one of each seed or sample.

    Attributes:
        row: what tables call the row.
        column: the set of questions.
        folders: seed, or number of a sample -> the run's folder, whether it exists or not; None stands for no seed.
        published: the runs that are read from published notes, and not from their folders.
    """

    row: str
    column: str
    folders: Mapping[int | None, Path]
    published: Runs = field(default_factory=dict, kw_only=True)

    @functools.cached_property
    def runs(self) -> Runs:
        """The finished runs."""
        return {
            seed: self.published.get(seed) or Run(folder)
            for seed, folder in self.folders.items()
            if seed in self.published or (folder / "metrics.json").is_file()
        }


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs of a page; each is labelled with its name, or with its folder where two have the same name.

    Raises:
        UserError: a folder given twice, or files that are missing or malformed.
    """
    names = [Run(folder).metrics.name for folder in folders]
    labels = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label}: given twice in --runs; give each run once")
    runs = [Run(*each, number) for number, each in enumerate(zip(folders, labels, strict=True))]
    for run in runs:
        check_present(run.folder / "traces.jsonl")
        # Read before anything is made of it.
        _ = run.config, run.costs, run.judging, run.predictions
    return runs
