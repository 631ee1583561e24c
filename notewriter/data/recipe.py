"""The recipe of a dataset, read from the options of `notewriter pairs` and `notewriter gold`."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from notewriter.data.dataset.balance import TWO_KINDS
from notewriter.data.gold_evidence import WRITERS
from notewriter.data.judges import JUDGES
from notewriter.data.judges.case import ComparisonArguments, Judge, Rules
from notewriter.data.options import GoldArguments, PairsArguments, RolloutArguments
from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.catalogue import check_family
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.ground.typed import misfit
from notewriter.methods import check_index, prepare, stage_named, stages, with_style
from notewriter.models.roles import ModelArguments, check_sampling, control_settings, sampling_by_stage
from notewriter.retrieval.chain import parts_of
from notewriter.rollouts.method import Method

_GRID = (0.1, 0.5, 0.9)


class PreparedMethod(NamedTuple):
    """A method with its checked options."""

    method: Method
    options: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The trained stages, with the sampling and judging of their candidates.

    Args:
        stages: the trained stages; where they have no judges, the gold evidence replies.
        methods: the methods of the trained stages, by name.
        top_k_range: least and most passages per retrieval, drawn per question, unless a method's options say so or it
            reads everything.
        seed: the seed of every random choice.
        judges: trained stage -> its judges, in the order in which they are asked.
        rules: how judges compare candidates.
        samplers: (temperature, top_p), one candidate each (DeepNote, section 3.4: {0.1, 0.5, 0.9} squared).
        gold_stages: stages where a text written from the gold evidence joins the candidates, for weak teachers.
        gold_note_words: words up to which such a note goes on with first sentences; None: not at all.
        sample_full_stages: whether a stage that has its quota is still sampled for the stages after it.
    """

    stages: Sequence[str]
    methods: Mapping[str, PreparedMethod] = field(default_factory=dict)
    top_k_range: tuple[int, int] = (3, 9)
    seed: int | None = 0
    judges: Mapping[str, Sequence[Judge]] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    samplers: Sequence[tuple[float, float]] = tuple(itertools.product(_GRID, _GRID))
    gold_stages: Collection[str] = ()
    gold_note_words: int | None = None
    sample_full_stages: bool = True

    def sampled(self, open_stages: Collection[str]) -> list[str]:
        """The stages to sample so that the open ones get pairs.

        These are the open ones and, with `sample_full_stages`, those that they continue from: in DNAlign, y+ of the
        note is part of the query's prompt (DeepNote, section 3.4), so the note is still chosen once its own quota is
        full. In a loop, every stage of it comes before the next round of any other.
        """
        if not self.sample_full_stages:
            return [stage for stage in self.stages if stage in open_stages]
        needed = set(open_stages)
        for method, options in self.methods.values():
            order = [stage.name for stage in method.stages]
            once = {stage for stage in order if calls_of(method, options, [stage]) == {stage: 1}}
            for stage in needed & set(order):
                place = order.index(stage)
                needed |= set(order[:place])
                if stage not in once:
                    needed |= set(order[place:]) - once
        return [stage for stage in self.stages if stage in needed]


def read_recipe(arguments: PairsArguments) -> Recipe:
    """Check the options before any model is called; the `family` of metrics is the dataset's if it is not given.

    Raises:
        UserError: an option does not fit the others or names something that does not exist.
    """
    family = arguments.family or choose("dataset", arguments.dataset, BENCHMARKS).family
    check_family(family)
    if not arguments.stages:
        raise UserError("stages: is empty; give stage -> judge, e.g. {deepnote/init_note: reference}")
    judges = {stage: _judges(stage, names) for stage, names in arguments.stages.items()}
    methods, top_k_range = read_methods(arguments, arguments.stages)
    for option in ("gold_stages", "quotas"):
        if unknown := set(getattr(arguments, option)) - set(arguments.stages):
            raise UserError(
                f"{option}: {sorted(unknown)[0]!r} is not among the stages; add it to stages, or leave it out"
            )
    _check_gold(arguments.gold_stages)
    samplers = tuple(itertools.product(arguments.temperatures, arguments.top_ps))
    for temperature, top_p in samplers:
        check_sampling(Sampling(temperature, top_p), "temperatures x top_ps")
    for stage in arguments.stages:
        if len(samplers) + (stage in arguments.gold_stages) < 2:
            raise UserError(
                f"temperatures x top_ps: {len(samplers)} sampling(s) leave {stage} without two candidates; give more"
            )
    compared = {each.name: getattr(arguments, each.name) for each in fields(ComparisonArguments)}
    return Recipe(
        stages=list(judges),
        methods=methods,
        top_k_range=top_k_range,
        seed=arguments.seed,
        judges=judges,
        rules=Rules(family=family, **compared),
        samplers=samplers,
        gold_stages=arguments.gold_stages,
        gold_note_words=arguments.gold_note_words,
        sample_full_stages=arguments.sample_full_stages,
    )


def read_gold_recipe(arguments: GoldArguments) -> Recipe:
    """Check the options before any model is called, as `read_recipe`; the stages have no judges.

    Raises:
        UserError: an option does not fit the others or names something that does not exist.
    """
    if not arguments.gold_stages:
        raise UserError("gold_stages: is empty; name stages, e.g. [deepnote/init_note, deepnote/answer]")
    _check_gold(arguments.gold_stages)
    possible = {each: stage_named(each) for each in arguments.gold_stages if stage_named(each).kind in TWO_KINDS}
    for stage in arguments.balanced_stages:
        choose("gold stage with two kinds of replies", stage, possible)
    methods, top_k_range = read_methods(arguments, arguments.gold_stages)
    return Recipe(
        stages=arguments.gold_stages,
        methods=methods,
        top_k_range=top_k_range,
        seed=arguments.seed,
        gold_note_words=arguments.gold_note_words,
    )


def read_methods(
    arguments: RolloutArguments, stages: Iterable[str]
) -> tuple[dict[str, PreparedMethod], tuple[int, int]]:
    """The methods of some stages with their checked options, and `top_k_range`.

    Raises:
        UserError: an option is out of range, or names something that does not exist.
    """
    if len(arguments.top_k_range) != 2 or not 1 <= arguments.top_k_range[0] <= arguments.top_k_range[1]:
        raise UserError(f"top_k_range: {arguments.top_k_range} is not [least, most]; give two numbers, such as [3, 9]")
    benchmark = choose("dataset", arguments.dataset, BENCHMARKS)
    methods = {}
    for name in methods_of(stages):
        # As in evaluation: a stage's prompt is the same in training as where it is served.
        options = with_style(name, arguments.method_options.get(name, {}), benchmark)
        methods[name] = PreparedMethod(prepare(name, options), options)
        check_index(methods[name].method, parts_of(arguments.index, arguments.retriever))
    if unused := set(arguments.method_options) - set(methods):
        raise UserError(
            f"method_options: {sorted(unused)[0]!r} is not the method of any stage in stages; leave it out, or add a "
            "stage of it"
        )
    least, most = arguments.top_k_range
    return methods, (least, most)


def _check_gold(names: Sequence[str]) -> None:
    possible = {name: stage for name, stage in stages().items() if stage.kind in WRITERS}
    for stage in names:
        choose("stage with gold evidence", stage, possible)
        _check_replies("gold_stages", stage)


def check_models(recipe: Recipe, models: ModelArguments) -> None:
    """Check that the models can play the roles that the judges need.

    Raises:
        UserError: a control plays the role of a stage and is alone there, a judge needs a model of its own, or several
            continuations would all be the same.
    """
    controls = control_settings(models)
    for stage in recipe.stages:
        role = stage_named(stage).role
        if (role if role in models.models else "policy") in controls and stage not in recipe.gold_stages:
            raise UserError(
                f"models: {role}: a control writes one text, so that {stage} has no second candidate; add the stage to "
                "gold_stages, or let a model play the role"
            )
    for stage, judges in recipe.judges.items():
        for judge in judges:
            for role in judge.roles:
                if role not in models.models:
                    raise UserError(
                        f"stages: {stage}: {judge.name} needs a model for the role {role} that stays the same whatever "
                        f'is trained; give --models \'{{"{role}": {{"serve": "MODEL"}}}}\', or its base_url and model'
                    )
    general, by_stage = sampling_by_stage(models)
    if recipe.rules.continuations > 1 and not any(each.temperature for each in (general, *by_stage.values())):
        raise UserError(
            f"continuations: {recipe.rules.continuations} continuations are all the same at temperature 0; give "
            "--temperature 0.7, or 1 continuation"
        )


def calls_of(method: Method, options: Mapping[str, Any], stages: Collection[str]) -> dict[str, int] | None:
    """The largest number of a method's calls of each of some stages; None if one of them does not say."""
    values = {**method.options, **options}
    calls = {}
    for stage in method.stages:
        if stage.name in stages:
            if stage.calls is None:
                return None
            calls[stage.name] = int(values[stage.calls]) if isinstance(stage.calls, str) else stage.calls
    return calls


def methods_of(stages: Iterable[str]) -> list[str]:
    """The names of the methods that stages belong to, in the stages' order."""
    return list(dict.fromkeys(stage.split("/")[0] for stage in stages))


def _judges(stage: str, names: object) -> list[Judge]:
    """A stage's judges, in the order in which they are asked.

    Raises:
        UserError: no such stage or judge, the stage has no replies to train, or the judge does not understand their
            kind.
    """
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names or misfit(names, list[str]):
        raise UserError(f"stages: {stage}: {names!r} names no judge; give one, or a list to be asked in order")
    kind = stage_named(stage).kind
    _check_replies("stages", stage)
    judges = [replace(JUDGES.choose(f"judge for {stage}", name), name=name) for name in names]
    for judge in judges:
        if kind not in judge.kinds:
            others = [other.name for other in JUDGES.values() if kind in other.kinds]
            raise UserError(
                f"stages: {judge.name} judges candidates of kind {' or '.join(judge.kinds)}, and {stage} gives a "
                f"{kind}; its judges are: {', '.join(others)}"
            )
    return judges


def _check_replies(option: str, stage: str) -> None:
    """Check that another text can be the reply at a stage.

    Raises:
        UserError: it cannot.
    """
    if stage_named(stage).continues:
        reason = "continues a text and has no reply of its own"
    elif stage_named(stage).scored:
        reason = "is read through its log-probabilities, which no other text has"
    else:
        return
    raise UserError(f"{option}: {stage}: {reason}; choose another stage")
