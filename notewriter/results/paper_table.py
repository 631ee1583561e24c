"""Tables of papers: a grid of evaluations, with a row for each model, method and setting and a column a benchmark."""

import contextlib
import functools
import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import Interval

from notewriter.artifacts.reading import pick
from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.evaluating import OPTIONS, EvaluateArguments
from notewriter.evaluation.judgements import JUDGEMENTS
from notewriter.evaluation.metrics import FAMILIES
from notewriter.experiments.files import MissingVariable, Variables, changed, filled, filled_in, read_file
from notewriter.ground import typed
from notewriter.ground.config import choose, from_keywords, usable
from notewriter.ground.errors import UserError
from notewriter.ground.options import defaults, kinds_in, names_in, names_of, option
from notewriter.ground.plugins import is_place, load, unknown
from notewriter.ground.recipes import find
from notewriter.ground.yaml_files import check_mapping, read_mapping
from notewriter.methods import METHODS
from notewriter.models.prices import CostArguments
from notewriter.models.roles import ModelArguments, policy_of
from notewriter.results.runs import Cell, Run
from notewriter.results.table_file import Model, Options, TableFile, TableIndex, TableJudge
from notewriter.retrieval.chain import parts_of
from notewriter.rollouts.identity import config_hash

T = TypeVar("T")

OUTPUT = "runs/papers"
"""Where the runs of papers' tables are by default."""

CORPORA = "runs/corpus"
"""Where a table makes its corpora, unless its variable `corpora` says it."""

OF_A_CELL = ("benchmark", "model")
"""Variables that every table defines itself: the names of each cell's benchmark and model."""

SEARCHED = names_of(EvaluateArguments, of="retriever")
"""The options of the retriever: a later layer of options replaces all of them."""


@dataclass
class Substitutes:
    """The substitutes for the paper's models, indexes, numbers of questions and options."""

    model: str | None = option(
        None, "a model to serve in place of every model, the judge included; the table marks it as a substitute"
    )
    indexes: str | None = option(
        None,
        "a folder with an index named after each benchmark, in place of the paper's retrievers; the table marks them",
    )
    limit: Annotated[int, Interval(ge=1)] | None = option(None, "maximum number of questions per cell, for a trial")
    questions: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "benchmark -> question file, in place of the question files of the table"},
    )
    options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": 'options of `evaluate` for all cells, e.g. {"serve_options": {"max_model_len": 4096}}'},
    )

    @property
    def given(self) -> bool:
        """Whether there is a substitute; `options` do not count, since they may only concern the hardware."""
        return bool(self.model or self.indexes or self.limit or self.questions)


@dataclass(frozen=True)
class Evaluated(Cell):
    """A cell that `evaluate` makes: one method with one model on one benchmark, with a run for each sample.

    Args:
        method: its name in the table.
        model: its name in the table.
        setting: what differs from the paper's settings; empty: nothing.
        options: of the evaluation, without `output_dir`.
        plays: the model, for estimates.
        judge: the judge; None where nothing is judged.
        searched: the index that the cell should search; None if it searches none or none is stated.
        lacks: why it cannot run; empty where it can.
    """

    method: str
    model: str
    setting: str
    options: Options
    plays: Model
    judge: TableJudge | None
    searched: TableIndex | None = None
    lacks: str = ""

    @property
    def name(self) -> str:
        """The name by which `--cells` selects it."""
        return "/".join(filter(None, (self.column, self.method, self.model, self.setting)))

    @property
    def folder(self) -> str:
        """The name of its first run folder, which cells of equal settings share (`folder_of`)."""
        return next(iter(self.folders.values())).name

    @property
    def finished(self) -> list[Run]:
        """The runs of its samples; empty unless all are finished."""
        return [] if self.lacks or len(self.runs) < len(self.folders) else list(self.runs.values())

    @functools.cached_property
    def parsed(self) -> tuple[EvaluateArguments, ModelArguments, CostArguments]:
        """The options as those of `notewriter evaluate`.

        Raises:
            UserError: a value is of the wrong type.
        """
        evaluation, models, costs = from_keywords(OPTIONS, self.options | {"output_dir": self.folder})
        return evaluation, models, costs

    @property
    def asked(self) -> list[ModelArguments]:
        """The models of the evaluation, and those of the judge, if there is one."""
        return [self.parsed[1], *([self.judge.models(Path("none"))] if self.judge else [])]

    def arguments(self, folder: Path, cache: Path) -> tuple[EvaluateArguments, ModelArguments, CostArguments]:
        """The options of the run in a folder; `cache` is used if they name none."""
        evaluation, models, costs = self.parsed
        models = replace(models, cache=self.options.get("cache", str(cache)))
        return replace(evaluation, output_dir=str(folder), name=folder.name), models, costs


def folder_of(options: Options, model: str, judge: TableJudge | None) -> str:
    """The name of a cell's run folder: a hash of the settings that differ from the defaults, after words to read.

    Cells of any tables with the same settings share a folder, unless a table has a judge of its own: a run has one
    judge. Its cells are answered from the cache. An option of a later version changes no name.
    """
    usual, of_method = defaults(*OPTIONS), METHODS[options["method"]].options
    chosen = _chosen(options, usual)
    chosen["method_options"] = _chosen(options.get("method_options", {}), of_method)
    name = f"{options['dataset']}-{options['method']}-{Path(model).name}"
    judged = f"-{judge.name}" if judge and judge.name else ""
    words, judged = ("".join(each if each.isalnum() or each in "._" else "-" for each in one) for one in (name, judged))
    return f"{words}-{config_hash(chosen, *OPTIONS)}{judged}"


@dataclass(frozen=True)
class PaperTable:
    """A paper's table: its file, with its variables, the substitutes, and the folder of its runs.

    `indexes` has the indexes of the file, by folder.
    """

    path: Path
    file: TableFile
    variables: Variables
    substitutes: Substitutes
    output: Path
    indexes: Mapping[str, TableIndex]

    @property
    def name(self) -> str:
        """The beginning of the names of the files that are written."""
        return "_".join(filter(None, (self.path.parent.name, self.path.stem)))

    @property
    def corpora_folder(self) -> str:
        """Where the corpora are made."""
        return filled("{{ corpora }}", self.variables, str(self.path)) if self.file.corpora else ""

    def chosen(self, patterns: Sequence[str]) -> list[Evaluated]:
        """The cells that a pattern fits, all without patterns.

        Raises:
            UserError: a pattern fits no cell.
        """
        for pattern in patterns:
            if not self.fitting([pattern]):
                names = ", ".join(cell.name for cell in self.cells[:3])
                raise UserError(f"--cells {pattern}: fits no cell of {self.path}; its cells are named like {names}")
        fitting = self.fitting(patterns or ["*"])
        return [cell for cell in self.cells if cell.name in fitting]

    def fitting(self, patterns: Sequence[str]) -> set[str]:
        """The names of the cells that a pattern fits."""
        return {cell.name for cell in self.cells if any(fnmatchcase(cell.name, each) for each in patterns)}

    @functools.cached_property
    def cells(self) -> list[Evaluated]:
        """The cells of all products, in the order of the file.

        Raises:
            UserError: a row names something that is not there, or a cell is given twice.
        """
        cells: dict[str, Evaluated] = {}
        for number, row in enumerate(self.file.rows):
            place = f"{self.path}: rows[{number}]"
            columns = _listed(row.columns) or self.file.columns
            if not columns:
                raise UserError(f"{place}: has no columns; name a benchmark, or a list")
            for names in itertools.product(*map(_listed, (row.method, row.model, row.setting)), columns):
                cell = self._cell(place, row.options, *names)
                if cell.name in cells:
                    raise UserError(f"{place}: {cell.name} is given twice; remove one")
                cells[cell.name] = cell
        return list(cells.values())

    def _cell(self, place: str, own: Options, method: str, model: str, setting: str, benchmark: str) -> Evaluated:
        file, substitutes = self.file, self.substitutes
        variables = {**self.variables, **dict(zip(OF_A_CELL, (benchmark, model), strict=True))}
        of_benchmark = dict(entry_of(place, "benchmark", benchmark, file.benchmarks))
        plays = _as_model(f"{self.path}: models: {model}", entry_of(place, "model", model, file.models))
        of_method = {"method": method} | file.methods.get(method, {})
        config = of_benchmark.pop("config", None)
        recipe = _recipe(str(config), f"{self.path}: benchmarks: {benchmark}") if config else {}
        if recipe.get("method") != of_method["method"]:
            recipe = _without(recipe, names_of(*OPTIONS, of="method"))
        layers = [recipe, of_benchmark, of_method, plays.options]
        layers += [entry_of(place, "setting", setting, file.settings)] if setting else []
        here = f"{place}: {benchmark}/{method}/{model}"
        options = _usable(here, _merged([*layers, file.options, own]))
        found = (filled(index, variables, place) for index in indexes_of(options))
        searched = next((self.indexes[each] for each in found if each in self.indexes), None)
        if plays.prices:
            options["prices"] = {"policy": plays.prices}
        options = self._served(options)
        # The table is its user's file, as one of options is.
        named = names_in([options.get(kind) for kind in ("method", "dataset", "family")])
        for name in filter(is_place, [*named, *kinds_in(options.get("retriever"))]):
            load(name)
        entry_of(place, "method", str(options.get("method")), METHODS)
        of_dataset = entry_of(place, "dataset", str(options.get("dataset")), BENCHMARKS)
        entry_of(place, "metric family", str(options.get("family") or of_dataset.family), FAMILIES)
        if substitutes.indexes:
            options = _merged([options, {"index": [f"{substitutes.indexes}/{benchmark}"]}])
        if benchmark in substitutes.questions:
            options = _without(options, names_of(*OPTIONS, of="questions"))
            options["path"] = substitutes.questions[benchmark]
        if substitutes.limit:
            options["limit"] = min(substitutes.limit, options.get("limit") or substitutes.limit)
        if not METHODS[options["method"]].retrieves:
            options, searched = _without(options, SEARCHED), None
        options, missing = _filled(options, variables, place)
        lacks = f"add --set {missing}=PATH" + (f"; {plays.recipe} trains it" if plays.recipe else "") if missing else ""
        judge = self._judge(place, variables)
        root = self.output / "cells" / folder_of(options, model, judge)
        folders: dict[int | None, Path] = {1: root}
        folders |= {number: root.with_name(f"{root.name}-sample{number}") for number in range(2, file.samples + 1)}
        row = ", ".join(filter(None, (method, model, setting)))
        cell = Evaluated(row, benchmark, folders, method, model, setting, options, plays, judge, searched, lacks)
        with _at(here):
            evaluation, *_ = cell.parsed
            parts_of(evaluation.index, evaluation.retriever)
            for models in cell.asked:
                policy_of(models)
        return cell

    def _served(self, options: Options) -> Options:
        """Options with the substitute in every role, without the serving options of the paper's models."""
        if self.substitutes.model:
            options = _without(options, names_of(*OPTIONS, of="model")) | {"serve": self.substitutes.model}
        return _merged([options, self.substitutes.options])

    def _judge(self, place: str, variables: Variables) -> TableJudge | None:
        """The judge of a cell; None where nothing is judged."""
        file, here = self.file, f"{self.path}: judge"
        for each in file.judgements:
            entry_of(f"{self.path}: judgements", "judgement", each, JUDGEMENTS)
        name = filled(file.judge_model, variables, f"{here}_model") if file.judge_model else ""
        entry = file.judge or {}
        if name:
            of_the_judge = _without(entry, {*names_of(*OPTIONS, of="model"), "billions"})
            entry = entry_of(place, "model", name, file.models) | of_the_judge
        if not file.judgements:
            return None
        if not entry:
            raise UserError(f"{self.path}: judgements: there is no judge; add one")
        _usable(here, _as_model(here, file.judge or {}).options, (ModelArguments,))
        plays = _as_model(here, entry)
        options, missing = _filled(self._served(plays.options), variables, here)
        if missing and name != variables["model"]:
            raise UserError(f"{here}: add --set {missing}=VALUE")
        return TableJudge(pick(options, ModelArguments), file.judgements, plays, name)


def read_table(
    path: Path, changes: Mapping[str, str], substitutes: Substitutes, output: Path = Path(OUTPUT)
) -> PaperTable:
    """Read a table's file; `changes` replaces variables, and the runs are in `output`.

    Raises:
        UserError: a file cannot be read, has unknown keys, or names something that is not there.
    """
    path = find(path)
    file = check_mapping(read_file(path, "check the path of the table"), TableFile, str(path))
    if taken := [name for name in OF_A_CELL if name in file.variables]:
        raise UserError(
            f"{path}: variables: {taken[0]!r} is a name of the table's own; choose another than "
            f"{' and '.join(OF_A_CELL)}, which name the benchmark and model of each cell"
        )
    variables = changed(({"corpora": CORPORA} if file.corpora else {}) | file.variables, changes, path)
    made = {
        name: replace(corpus, **filled_in(vars(corpus), variables, f"{path}: corpora: {name}"))
        for name, corpus in file.corpora.items()
    }
    file = replace(file, corpora=made)
    for name, index in file.indexes.items():
        entry_of(f"{path}: indexes: {name}", "corpus", index.corpus, file.corpora)
    indexes = {filled(name, variables, f"{path}: indexes: {name}"): index for name, index in file.indexes.items()}
    substitutes = replace(substitutes, options=_usable("--options", substitutes.options))
    table = PaperTable(path, file, variables, substitutes, output, indexes)
    # Read now, so that their faults are reported before anything is done.
    _ = table.cells
    return table


def entry_of(place: str, kind: str, name: str, entries: Mapping[str, T]) -> T:
    """An entry by the name that a table's file gives at `place`.

    Raises:
        UserError: there is none; names the place and the names that there are.
    """
    with _at(place):
        return choose(kind, name, entries)


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    """Prefix errors with a place in a file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{place}: {error}") from error


def _usable(place: str, options: Options, kinds: Sequence[type] = OPTIONS) -> Options:
    """Options of an evaluation or a judge, each of its type; a single value may stand for a list of one.

    Raises:
        UserError: one is unknown, or a value has the wrong type; names the place.
    """
    known = names_of(*kinds) - {"output_dir", "max_cost"}
    if others := [key for key in options if key not in known]:
        raise UserError(f"{place}: {unknown('key', others[0], known)}")
    with _at(place):
        return usable(kinds, options)


def indexes_of(options: Options) -> list[str]:
    """The folders of the indexes that an evaluation searches."""
    parts = options.get("retriever") or [{"index": folder} for folder in options.get("index") or []]
    return [str(part[kind]) for part in parts for kind in ("index", "documents") if kind in part]


@functools.cache
def _recipe(name: str, place: str) -> Options:
    return read_mapping(find(name), f"name a recipe in config of {place}", {})[1]


def _listed(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]


def _as_model(place: str, entry: Options) -> Model:
    """A model's entry: what `Model` has besides options, and options."""
    own = {key: entry[key] for key in ("billions", "prices", "recipe") if key in entry}
    model = typed.read({"options": {}} | own, Model, place)
    return replace(model, options=_without(entry, own))


def _without(options: Mapping[str, Any], names: Container[str]) -> Options:
    return {key: value for key, value in options.items() if key not in names}


def _chosen(options: Options, usual: Mapping[str, Any]) -> Options:
    """The options that differ from the usual ones."""
    return {key: value for key, value in options.items() if value != usual.get(key, MISSING)}


def _merged(layers: Sequence[Options]) -> Options:
    """Options in which later layers win; of mappings, their entries do."""
    result: Options = {}
    for layer in layers:
        if SEARCHED & layer.keys():
            result = _without(result, SEARCHED)
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = result[key] | value if both else value
    return result


def _filled(options: Options, variables: Variables, place: str) -> tuple[Options, str]:
    """Options with their variables, and the first variable that has no value; its option is left as it is."""
    result: Options = {}
    missing = ""
    for key, value in options.items():
        try:
            result[key] = filled_in(value, variables, f"{place}: {key}")
        except MissingVariable as error:
            result[key], missing = value, missing or error.name
    return result, missing
