"""The keys of a table's file.

It lists products of names of models, methods and settings. What they mean is in the file that it includes, which is the
same for all tables of a paper.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval, MinLen

from notewriter.experiments.files import Text, Value
from notewriter.ground.config import from_keywords
from notewriter.models.roles import ModelArguments

Options = dict[str, Any]
"""Options of `notewriter evaluate`, as a configuration file has them."""


@dataclass(frozen=True)
class Model:
    """A model by its name in the paper: its address or checkpoint, and its prices.

    Args:
        options: `serve`, or `base_url` and `model`, and whatever else the evaluation of this model needs.
        billions: its parameters in billions, for estimates; of each role where roles have models of their own.
        prices: of a million prompt and completion tokens, for a model that is paid for.
        recipe: what trains it, for a checkpoint that is not published.
    """

    options: Options
    billions: float | dict[str, float] | None = None
    prices: list[float] | None = None
    recipe: Text | None = None

    def billions_of(self, role: str) -> float | None:
        """The size of the model that plays a role."""
        if isinstance(self.billions, dict):
            return self.billions.get(role, self.billions.get("policy"))
        return self.billions


@dataclass(frozen=True)
class Corpus:
    """How a corpus of a table is made: options of `notewriter corpus`, and what estimates assume.

    Args:
        source: of the documents; by default the corpus's name.
        path: documents of the user's, for that source; without a source, a corpus.jsonl that is there.
        split: how documents become passages.
        size: of the passages.
        dataset: the benchmark of the questions' own paragraphs.
        questions: the split of its questions that have paragraphs; by default the one that is evaluated.
        tokenizer: what counts the tokens of each question's paragraphs.
        words: the usual length of a passage.
        read: the usual length of one that is found, if it is another.
        passages: how many there are, where nobody states it; of a path, by default as many as its bytes suggest.
    """

    source: Text | None = None
    path: Text | None = None
    split: Text | None = None
    size: int | None = None
    dataset: Text | None = None
    questions: Text | None = None
    tokenizer: Text | None = None
    words: Annotated[int, Interval(ge=1)] = 100
    read: Annotated[int, Interval(ge=1)] | None = None
    passages: Annotated[int, Interval(ge=1)] | None = None

    @property
    def is_made(self) -> bool:
        """Whether it is a corpus.jsonl of the user's."""
        return self.path is not None and self.source is None


@dataclass(frozen=True)
class TableIndex:
    """An index of a table.

    Args:
        corpus: its corpus.
        encoder: the encoder of a dense index; None for BM25.
        query_prompt: the text before queries, if it is not the encoder's own.
        vectors: the published vectors that it takes, by their name in `notewriter fetch index`.
    """

    corpus: Text
    encoder: Text | None = None
    query_prompt: str | None = None
    vectors: Text | None = None


@dataclass(frozen=True)
class EncoderSize:
    """An encoder or a reranker, for estimates: its parameters in billions, and its download in gigabytes."""

    billions: float
    gigabytes: float


@dataclass(frozen=True)
class TableJudge:
    """The model that judges finished runs, and its judgements (`notewriter.evaluation.judgements`).

    Args:
        options: how it is reached and how it samples.
        judgements: the names of its judgements.
        plays: the model, for estimates.
        name: its name where the table has a judge of its own; empty for the paper's.
    """

    options: Options
    judgements: list[str]
    plays: Model
    name: str = ""

    def models(self, cache: Path) -> ModelArguments:
        """The options as those of `notewriter judge`; `cache` is used if they name none."""
        models: ModelArguments = from_keywords([ModelArguments], {"cache": str(cache)} | self.options)[0]
        return models


Names = str | Annotated[list[str], MinLen(1)]


@dataclass(frozen=True)
class Row:
    """An entry of `rows`, each name or names."""

    method: Names
    model: Names
    setting: Names = ""
    columns: str | list[str] = field(default_factory=list)
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class TableFile:
    """A table's file and those that it includes.

    Args:
        title: the title of the table.
        paper: the paper's name in the published values; None for a table of no paper.
        columns: the benchmarks of all rows that name none.
        rows: products: `model`, `method`, `setting` and `columns`, each one name or a list, and `options`.
        benchmarks: name -> options, and `config`, the recipe with the paper's settings.
        models: name -> how the model is reached.
        methods: name -> options (`method`, `method_options`); names of methods stand for themselves.
        settings: name -> options that a row changes.
        corpora: name -> how the corpus is made (`Corpus`).
        indexes: folder -> its contents (`TableIndex`); another corpus is marked in the table.
        encoders: hub id -> its size (`EncoderSize`).
        variables: name -> value; null for one that has to be given.
        place: the table or section of the paper that has the published values; None where the text has none.
        metrics: the columns; default: the paper's at `place`, or else the scores of the metric family.
        judge: the judge; None where no table has judged scores.
        judge_model: which of `models` judges in its place; `{{ model }}` for the model of each cell.
        judgements: the judgements of finished runs.
        by: what divides each cell into rows, which are the points of a curve: the number of documents a question needs.
        samples: how often each question is answered, with draws of its own.
        options: options of all cells.
        note: a remark for readers of the table.
    """

    title: Text
    rows: Annotated[list[Row], MinLen(1)]
    benchmarks: dict[str, Options]
    models: dict[str, Options]
    columns: list[str] = field(default_factory=list)
    methods: dict[str, Options] = field(default_factory=dict)
    settings: dict[str, Options] = field(default_factory=dict)
    corpora: dict[str, Corpus] = field(default_factory=dict)
    indexes: dict[str, TableIndex] = field(default_factory=dict)
    encoders: dict[str, EncoderSize] = field(default_factory=dict)
    variables: dict[str, Value] = field(default_factory=dict)
    paper: Text | None = None
    place: Text | None = None
    metrics: list[str] = field(default_factory=list)
    judge: Options | None = None
    judge_model: Text | None = None
    judgements: list[str] = field(default_factory=list)
    by: Literal["gold_documents"] | None = None
    samples: Annotated[int, Interval(ge=1)] = 1
    options: Options = field(default_factory=dict)
    note: str = ""
