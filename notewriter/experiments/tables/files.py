"""Table files: the cells of a paper's table in few lines, each cell an ordinary evaluation.

A table file lists products of models, methods, settings and benchmarks. What these names mean, it finds in its `base`:
a file of the paper's models, methods and benchmarks, which is the same for all tables of the paper.
"""

import functools
import itertools
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval, MinLen

from notewriter.artifacts.reading import pick
from notewriter.corpora.published import PUBLISHED, UNPUBLISHED
from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.evaluate import OPTIONS, EvaluateArguments
from notewriter.evaluation.judgements import JUDGEMENTS
from notewriter.experiments.pipelines.pipeline import PROJECT
from notewriter.ground.config import check, check_mapping, choose, read_mapping
from notewriter.ground.errors import UserError
from notewriter.ground.options import defaults
from notewriter.ground.typed import misfit
from notewriter.methods import METHODS
from notewriter.models.prices import CostArguments
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.identity import config_hash

Text = Annotated[str, MinLen(1)]
Options = dict[str, Any]
"""Options of `notewriter evaluate`, as a configuration file has them."""

MERGED = ("method_options", "serve_options", "stage_sampling", "models", "prices")
"""Options that are mappings: a later one adds to an earlier one instead of replacing it."""

SEARCHED = ("index", "retriever")
"""Options that say what is searched: a later one replaces both."""

OF_THE_METHOD = ("method", "method_options", "stage_sampling")
"""Options of a recipe that another method does not share."""

OF_THE_MODEL = (
    "base_url",
    "served",
    "model",
    "models",
    "serve_options",
    "chat_template_kwargs",
    "parameters",
    "prices",
    "concurrency",
)
"""Options that belong to the model that is asked."""

OF_THE_QUESTIONS = ("question_set", "ids", "where")
"""Options that select from the paper's question file and do not fit another one."""

AXES = ("method", "model", "setting", "benchmark")
"""What a product multiplies, the rows of a table first."""

OWN_MODEL = "$model"
"""As the judge of a table: each model judges its own cells."""

EVALUATION = {each.name for kind in OPTIONS for each in fields(kind)} - {"output_dir", "max_cost"}


@dataclass(frozen=True)
class Model:
    """A model by the name that the paper gives it: how it is reached, and what it costs.

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
            return self.billions.get(role, self.billions["policy"])
        return self.billions


@dataclass(frozen=True)
class Searched:
    """What an index of a table has: a corpus (`notewriter.corpora.published`), searched by `BM25` or an encoder."""

    corpus: Text
    retriever: Text


@dataclass(frozen=True)
class Judge:
    """The model that judges finished runs, and what it judges (`notewriter.evaluation.judgements`).

    Args:
        options: how it is reached and how it samples.
        judgements: what it judges.
        plays: the model, for estimates.
        name: its name where the table has a judge of its own; empty for the paper's.
    """

    options: Options
    judgements: list[str]
    plays: Model
    name: str = ""

    def models(self, cache: Path) -> ModelArguments:
        """The options as those of `notewriter judge`; `cache` is used if they name none."""
        options: Options = {"cache": str(cache)} | self.options
        found = ModelArguments(**options)
        check(found)
        return found


@dataclass(frozen=True)
class Paper:
    """The base of a paper's tables.

    Args:
        paper: its name in the published values.
        benchmarks: benchmark -> options, and `config`, the recipe of configs/eval with the paper's settings.
        models: name -> how the model is reached.
        methods: name -> options (`method`, `method_options`); names of methods stand for themselves.
        variables: name -> value, which `--set` replaces; a value of null has to be given.
        indexes: index -> what it has, `corpus` and `retriever`; another corpus is marked in the table.
        settings: name -> options; what a row of a table changes.
        options: options of all cells.
        judge: the judge, and the `judgements` of all tables; None where no table has judged scores.
    """

    paper: Text
    benchmarks: dict[str, Options]
    models: dict[str, Options]
    methods: dict[str, Options] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    indexes: dict[str, dict[str, str]] = field(default_factory=dict)
    settings: dict[str, Options] = field(default_factory=dict)
    options: Options = field(default_factory=dict)
    judge: Options | None = None


@dataclass(frozen=True)
class Content:
    """A table file.

    Args:
        title: what the table shows.
        base: the file of the paper, beside this one.
        cells: products: `model`, `method`, `setting` and `benchmark`, each one name or a list, and `options`.
        place: the table or section of the paper that has the published values; None where the text has none.
        benchmarks: those of all products that name none.
        metrics: the columns; default: what the paper reports at `place`.
        judgements: what is judged; default: the paper's.
        judge: which of the paper's models judges, or `$model` for the model of each cell; default: the paper's judge.
        by: what divides each cell into rows, which are the points of a curve: the number of documents a question needs.
        samples: how often each question is answered, with draws of its own.
        options: options of all cells.
        note: what a reader of the table has to know.
    """

    title: Text
    base: Text
    cells: list[dict[str, Any]]
    place: Text | None = None
    benchmarks: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    judgements: list[str] | None = None
    judge: Text | None = None
    by: Literal["gold_documents"] | None = None
    samples: Annotated[int, Interval(ge=1)] = 1
    options: Options = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Substitutes:
    """What stands in for the paper's models, indexes and numbers of questions, each None for the paper's own.

    Args:
        model: a model that is served in place of every model, the judge too.
        indexes: a folder of indexes named after the benchmarks, searched in place of the paper's retrievers.
        limit: the maximum number of questions of a cell.
        questions: benchmark -> question file.
        options: options of all cells, such as `serve_options`.
    """

    model: str | None = None
    indexes: str | None = None
    limit: int | None = None
    questions: Mapping[str, str] = field(default_factory=dict)
    options: Options = field(default_factory=dict)

    @property
    def given(self) -> bool:
        """Whether something stands in for the paper's; options do not count, which may be those of the hardware."""
        return bool(self.model or self.indexes or self.limit or self.questions)


@dataclass(frozen=True)
class Cell:
    """A row's entry for a benchmark: an evaluation, of which each sample has a run folder.

    Args:
        method: its name in the table.
        model: its name in the table.
        setting: what differs from the paper's settings; empty: nothing.
        benchmark: the benchmark.
        options: of the evaluation, without `output_dir`.
        plays: the model, for estimates.
        judge: the judge; None where the table has none.
        searched: what the cell should search; None where it searches nothing or that is not stated.
        lacks: why it cannot run; empty where it can.
    """

    method: str
    model: str
    setting: str
    benchmark: str
    options: Options
    plays: Model
    judge: Judge | None
    searched: Searched | None = None
    lacks: str = ""

    @property
    def name(self) -> str:
        """What `--cells` selects it by."""
        return "/".join(filter(None, (self.benchmark, self.method, self.model, self.setting)))

    @property
    def folder(self) -> str:
        """The name of its run folder: a hash of the settings that differ from the defaults, after words to read.

        Cells of any tables with the same settings share a folder, unless a table has a judge of its own: a run has one
        judge. Its cells are answered from the cache. An option of a later version changes no name.
        """
        method = METHODS[self.options["method"]]
        known = defaults(*OPTIONS)
        chosen = {key: value for key, value in self.options.items() if value != known.get(key, MISSING)}
        chosen["method_options"] = {
            key: value
            for key, value in self.options.get("method_options", {}).items()
            if value != method.options.get(key, MISSING)
        }
        name = f"{self.options['dataset']}-{self.options['method']}-{Path(self.model).name}"
        judge = f"-{self.judge.name}" if self.judge and self.judge.name else ""
        words, judged = (
            "".join(each if each.isalnum() or each in "._" else "-" for each in one) for one in (name, judge)
        )
        return f"{words}-{config_hash(chosen, *OPTIONS)}{judged}"

    def arguments(self, folder: Path, cache: Path) -> tuple[EvaluateArguments, ModelArguments, CostArguments]:
        """The options as those of `notewriter evaluate`; `cache` is used if they name none.

        Raises:
            UserError: a value is of the wrong type.
        """
        options: Options = {"cache": str(cache)} | self.options | {"output_dir": str(folder), "name": folder.name}
        arguments = EvaluateArguments(**pick(options, EvaluateArguments))
        models = ModelArguments(**pick(options, ModelArguments))
        costs = CostArguments(**pick(options, CostArguments))
        for each in (arguments, models, costs):
            try:
                check(each)
            except UserError as error:
                raise UserError(f"{self.name}: {error}") from error
        return arguments, models, costs


@dataclass(frozen=True)
class Table:
    """A table with its cells, its base and what stands in for the paper's."""

    path: Path
    content: Content
    paper: Paper
    cells: list[Cell]
    substitutes: Substitutes

    @property
    def name(self) -> str:
        """The beginning of the names of the files that are written."""
        return f"{self.path.parent.name}_{self.path.stem}"


def read_table(path: Path, changes: Mapping[str, str], substitutes: Substitutes) -> Table:
    """Read a table file and its base; `changes` replaces variables.

    Raises:
        UserError: a file cannot be read, has unknown keys, or names something that is not there.
    """
    content = Content(**_read(path, Content))
    base = path.parent / content.base
    paper = Paper(**_read(base, Paper))
    for name in changes:
        if name not in paper.variables:
            raise UserError(f"--set {name}: {base} has no such variable; it has {', '.join(paper.variables) or 'none'}")
    reader = _Reader(path, base, content, paper, _variables(base, paper.variables | dict(changes)), substitutes)
    return Table(path, content, paper, list(reader.cells()), substitutes)


@dataclass(frozen=True)
class _Reader:
    """What the cells of a file are read with."""

    path: Path
    base: Path
    content: Content
    paper: Paper
    variables: Mapping[str, str]
    substitutes: Substitutes

    def cells(self) -> Iterator[Cell]:
        """The cells of all products, in the order of the file."""
        names: set[str] = set()
        for number, product in enumerate(self.content.cells):
            place = f"{self.path}: cells[{number}]"
            _check_keys(product, [*AXES, "options"], place)
            left_out = {"setting": "", "benchmark": self.content.benchmarks}
            axes = [_listed(product.get(axis, left_out.get(axis))) for axis in AXES]
            if empty := [axis for axis, values in zip(AXES, axes, strict=True) if not values]:
                raise UserError(f"{place}: has no {empty[0]}; name one, or a list")
            for method, model, setting, benchmark in itertools.product(*axes):
                cell = self._cell(place, product.get("options", {}), method, model, setting, benchmark)
                if cell.name in names:
                    raise UserError(f"{place}: {cell.name} is given twice; remove one")
                names.add(cell.name)
                yield cell

    def _cell(self, place: str, own: Options, method: str, model: str, setting: str, benchmark: str) -> Cell:
        of_benchmark = dict(self._entry(place, "benchmark", benchmark, self.paper.benchmarks))
        plays = _model(f"{self.base}: models: {model}", self._entry(place, "model", model, self.paper.models))
        of_method = {"method": method} | self.paper.methods.get(method, {})
        recipe = _recipe(of_benchmark.pop("config")) if "config" in of_benchmark else {}
        if recipe.get("method") != of_method["method"]:
            recipe = {key: value for key, value in recipe.items() if key not in OF_THE_METHOD}
        layers = [recipe, self.paper.options, of_benchmark, of_method, plays.options]
        layers += [self._entry(place, "setting", setting, self.paper.settings)] if setting else []
        options = _merged([*layers, self.content.options, own])
        variables = {**self.variables, "benchmark": benchmark}
        of_the_paper, _ = _filled(indexes_of(options), variables, place)
        searched = next((self.searched[index] for index in of_the_paper if index in self.searched), None)
        if plays.prices:
            options["prices"] = {"policy": plays.prices}
        if self.substitutes.model:
            options = _served_by(self.substitutes.model, options)
        options = _merged([options, self.substitutes.options])
        for kind, known in (("method", METHODS), ("dataset", BENCHMARKS)):
            if options.get(kind) not in known:
                names = ", ".join(sorted(known))
                raise UserError(f"{place}: {kind} {options.get(kind)!r} is unknown; choose one of: {names}")
        lacks = ""
        if self.substitutes.indexes:
            options = _merged([options, {"index": [f"{self.substitutes.indexes}/{benchmark}"]}])
        if benchmark in self.substitutes.questions:
            options = {key: value for key, value in options.items() if key not in OF_THE_QUESTIONS}
            options["path"] = self.substitutes.questions[benchmark]
        if self.substitutes.limit:
            options["limit"] = min(self.substitutes.limit, options.get("limit") or self.substitutes.limit)
        if not METHODS[options["method"]].retrieves:
            options = {key: value for key, value in options.items() if key not in SEARCHED}
            searched = None
        options, missing = _filled(options, variables, place)
        if missing:
            lacks = f"add --set {missing[0]}=PATH" + (f"; {plays.recipe} trains it" if plays.recipe else "")
        _check_keys(options, EVALUATION, f"{place}: {benchmark}/{method}/{model}")
        return Cell(method, model, setting, benchmark, options, plays, self._judge(place, model), searched, lacks)

    @functools.cached_property
    def searched(self) -> dict[str, Searched]:
        """What each index has that the paper's file lists."""
        found = {}
        for written, entry in self.paper.indexes.items():
            place = f"{self.base}: indexes: {written}"
            check_mapping(entry, Searched, place)
            searched = Searched(**entry)
            choose(f"corpus of {place}", searched.corpus, {**PUBLISHED, **UNPUBLISHED})
            for benchmark in self.paper.benchmarks:
                index, _ = _filled(written, {**self.variables, "benchmark": benchmark}, place)
                found[index] = searched
        return found

    def _entry(self, place: str, kind: str, name: str, known: Mapping[str, Options]) -> Options:
        try:
            return choose(kind, name, known)
        except UserError as error:
            raise UserError(f"{place}: {error} (in {self.base})") from error

    def _judge(self, place: str, model: str) -> Judge | None:
        """The judge of a model's cells; None where the table has none or needs none."""
        found = dict(self.paper.judge or {})
        judgements = found.pop("judgements", [])
        if self.content.judgements is not None:
            judgements = self.content.judgements
        for each in judgements:
            choose("judgement", each, JUDGEMENTS)
        name = model if self.content.judge == OWN_MODEL else self.content.judge or ""
        if name:
            of_the_judge = {
                key: value for key, value in found.items() if key not in (*OF_THE_MODEL, "serve", "billions")
            }
            found = self._entry(place, "model", name, self.paper.models) | of_the_judge
        if not found:
            if judgements:
                raise UserError(f"{self.path}: judgements: {self.base} has no judge; add one")
            return None
        plays = _model(f"{self.base}: judge", found)
        options = _served_by(self.substitutes.model, plays.options) if self.substitutes.model else plays.options
        options, missing = _filled(_merged([options, self.substitutes.options]), self.variables, f"{self.base}: judge")
        if missing and name != model:
            raise UserError(f"{self.base}: judge: add --set {missing[0]}=VALUE")
        return Judge(pick(options, ModelArguments), judgements, plays, name)


def indexes_of(options: Options) -> list[str]:
    """The folders of the indexes that an evaluation searches."""
    parts = options.get("retriever") or [{"index": folder} for folder in options.get("index") or []]
    return [
        str(part[kind]) for part in parts for kind in ("index", "documents") if isinstance(part, dict) and kind in part
    ]


def _read(path: Path, kind: type) -> dict[str, Any]:
    """A YAML file that has the keys of a dataclass."""
    _, found = read_mapping(path, "check the path of the table")
    check_mapping(found, kind, str(path))
    return found


@functools.cache
def _recipe(path: str) -> Options:
    """A recipe of the project, by its path there."""
    return read_mapping(PROJECT / path)[1]


def _check_keys(found: Mapping[str, Any], known: Collection[str], place: str) -> None:
    if unknown := [key for key in found if key not in known]:
        raise UserError(f"{place}: unknown key {unknown[0]!r}; known are: {', '.join(sorted(known))}")


def _listed(names: object) -> list[str]:
    return [str(name) for name in names] if isinstance(names, list) else [] if names is None else [str(names)]


def _model(place: str, entry: Options) -> Model:
    """A model's entry: what `Model` has besides options, and options."""
    own = {key: entry[key] for key in ("billions", "prices", "recipe") if key in entry}
    if problem := misfit({"options": {}} | own, Model, place):
        raise UserError(problem)
    return Model({key: value for key, value in entry.items() if key not in own}, **own)


def _merged(layers: Sequence[Options]) -> Options:
    """Options in which later layers win."""
    result: Options = {}
    for layer in layers:
        if any(key in layer for key in SEARCHED):
            result = {key: value for key, value in result.items() if key not in SEARCHED}
        for key, value in layer.items():
            result[key] = result.get(key, {}) | value if key in MERGED else value
    return result


def _served_by(model: str, options: Options) -> Options:
    """The options with one served model in every role; vLLM's options for the paper's models do not suit it."""
    return {key: value for key, value in options.items() if key not in OF_THE_MODEL} | {"serve": model}


def _variables(base: Path, given: Mapping[str, str | None]) -> dict[str, str]:
    """The variables that have a value; each may use those above it."""
    values: dict[str, str] = {}
    for name, value in given.items():
        if value is not None:
            values[name], missing = _filled(value, values, f"{base}: variables: {name}")
            if missing:
                raise UserError(f"{base}: variables: {name}: ${missing[0]} has no value above it; move it up")
    return values


def _filled(value: Any, variables: Mapping[str, str], place: str) -> tuple[Any, list[str]]:
    """A value with `$NAME` replaced in all its strings, and the names that have no value."""
    missing: list[str] = []

    def filled(each: Any) -> Any:
        if isinstance(each, dict):
            return {key: filled(one) for key, one in each.items()}
        if isinstance(each, list):
            return [filled(one) for one in each]
        if not isinstance(each, str):
            return each
        template = string.Template(each)
        if not template.is_valid():
            raise UserError(f"{place}: {each!r} has a $ that names no variable; write $$ for a dollar sign")
        missing.extend(name for name in template.get_identifiers() if name not in variables)
        return template.safe_substitute(variables)

    return filled(value), missing
