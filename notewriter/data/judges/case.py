"""The judge: its case, its rules and its verdict."""

import math
import random
import statistics
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated, Any, Literal, Protocol, get_args

from annotated_types import Interval

from notewriter.ground.options import option
from notewriter.ground.plugins import Misreturn, awaited, faults_of
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import words_in
from notewriter.ground.typed import misfit
from notewriter.models import Role
from notewriter.models.client import RequestRefused
from notewriter.rollouts.method import Kind, Stage
from notewriter.rollouts.resources import Resources

Rejected = Literal["worst", "hardest", "every"]
"""The choice of the rejected among the worse candidates: one, or each in a pair of its own."""

RESOLUTION = 1e-9
"""Smaller differences of scores are floating-point noise, as between equal means of thirds."""

CUT = "was cut at its token limit"
"""Why a candidate may not be chosen, as a predicate."""

LENGTH_GAP = "the sides differ in length by more than max_length_gap"
"""The reason for no pair although a candidate is better than another."""

NOTHING = "no candidate better than nothing: the best score is 0 or less"
"""The reason for no pair where no score is positive."""

SIMILAR = math.log(2)
"""The difference of two logarithms of lengths up to which the lengths are similar."""


class AskModel(Protocol):
    """Sends the prompt of a stage to the model of its role and returns the reply; the variables fill the prompt."""

    def __call__(
        self, stage: Stage, json_schema: dict[str, Any] | None = None, sample: int = 0, **variables: Any
    ) -> Awaitable[str]:
        """One reply, without surrounding white space; `sample` numbers the draws of one prompt."""


class Finish(Protocol):
    """Rolls a candidate forward to the method's answer; `number` tells its continuations apart."""

    def __call__(self, candidate: str, number: int = 0) -> Awaitable[str | None]:
        """The answer; None if the endpoint refuses a request on the way."""


@dataclass(kw_only=True)
class ComparisonArguments:
    """The options of how candidates are scored and compared."""

    rejected: Rejected = option(
        "worst",
        "the worse candidate that judges with scores reject: worst (the lowest score), hardest (the lowest "
        "score of those neither cut nor empty and similar in length to the chosen one; others only if there is "
        "none), or every (each worse candidate, in a pair of its own)",
    )
    note_words: Annotated[int, Interval(ge=1)] | None = option(
        40,
        "number of first words of a note that the judges reference, whole_facts, next_search and likelihood read, so "
        "that longer notes are not better for their length; null: all words",
    )
    max_length_gap: Annotated[float, Interval(ge=0, lt=1)] | None = option(
        None,
        "share of the longer side's words by which chosen and rejected may differ in length, e.g. 0.15; "
        "prompts that would give no pair within it are counted",
    )
    judge_orders: Annotated[int, Interval(ge=1, le=2)] = option(
        2,
        "number of orders in which the judge llm sees the candidates: with 2, only a pair that it names both times "
        "counts; DNAlign has 1",
    )
    min_gap: float = option(0.0, "smallest difference of two scores that makes a pair")
    continuations: Annotated[int, Interval(ge=1, le=64)] = option(
        1,
        "number of continuations of a candidate (judge outcome), or of answers written from a note (judge gain); the "
        "score is the mean over these, with its standard error, so that one lucky answer makes no pair",
    )
    noise_margin: Annotated[float, Interval(ge=0)] = option(
        2.0,
        "with several continuations: the least difference of a pair's scores, in standard errors of this difference",
    )


@dataclass(kw_only=True)
class Rules(ComparisonArguments):
    """The rules of scoring and comparing candidates, the same for all prompts of a run.

    Its fields are the options of `notewriter pairs` with these names; `family` is the metric family that scores
    answers.
    """

    family: str = "hotpotqa"


@dataclass(frozen=True)
class Case:
    """The candidates of one prompt, and the means to compare them.

    Args:
        question: the question being rolled out.
        kind: the kind of the candidates (`notewriter.rollouts.method.Kind`).
        stage: the name of the stage that they are replies at, such as `deepnote/init_note`.
        request: the prompt that the candidates reply to.
        variables: what filled that prompt.
        options: the method's options with their values.
        seen: the ids of the passages that the method has retrieved so far, each with its title.
        candidates: distinct, non-empty texts.
        cut: for each candidate, whether it was cut at its token limit, so that it may only be rejected.
        ask: asks the judge's model, or that of another role.
        reader: scores texts by models, at temperature 0, for functions of the evaluation.
        search: asks the index for passages (query, top-k).
        finish: rolls a candidate forward to the method's answer.
        next_query: the first query that the method sends to the index after a candidate; None if it sends none.
        random: the source of chance, seeded per prompt.
        rules: how candidates are scored and compared.
    """

    question: Question
    kind: Kind
    stage: str
    request: str
    variables: Mapping[str, Any]
    options: Mapping[str, Any]
    seen: Mapping[str, str]
    candidates: Sequence[str]
    cut: Sequence[bool]
    ask: AskModel
    reader: Resources
    search: Callable[[str, int], Awaitable[list[Passage]]]
    finish: Finish
    next_query: Callable[[str], Awaitable[str | None]]
    random: random.Random
    rules: Rules

    def among(self, members: Sequence[int]) -> "Case":
        """The same case restricted to some of its candidates."""
        return replace(
            self,
            candidates=[self.candidates[index] for index in members],
            cut=[self.cut[index] for index in members],
        )


@dataclass(frozen=True)
class Verdict:
    """The chosen and the rejected candidate, or the reason why there is no pair.

    Args:
        chosen: index of the better candidate, from 0. Without a pair, the one that the method continues with.
        rejected: index of the worse candidate.
        scores: one per candidate, for judges that score; None for a candidate without a score.
        replies: raw replies of the judge's model, or the answers that candidates led to.
        orders: for each reply, the indices of the candidates in the order in which the model saw them.
        agreements: for each question put in two orders, whether both replies named the same candidates.
        reason: why there is no pair; empty if there is one.
        best: indices tied with the chosen candidate.
        worst: indices tied with the rejected candidate.
        worse: indices of all that may be rejected, for judges that score.
        alike: whether all candidates are equally good, so that `chosen` is arbitrary.
        judge: the judges that decided, separated by commas.
        unreadable: how many of the replies could not be parsed.
        noise: the standard error of each score, for judges that know it.
        refusal: why the endpoint refused a judge's request; empty if it did not.
    """

    chosen: int | None = None
    rejected: int | None = None
    scores: list[float | None] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    orders: list[list[int]] = field(default_factory=list)
    agreements: list[bool] = field(default_factory=list)
    reason: str = ""
    best: Sequence[int] = ()
    worst: Sequence[int] = ()
    worse: Sequence[int] = ()
    alike: bool = False
    judge: str = ""
    unreadable: int = 0
    noise: list[float | None] = field(default_factory=list)
    refusal: str = ""


@dataclass(frozen=True)
class Judge:
    """Compares the candidates of one prompt; call it with a case. `judge` makes one of a function.

    Args:
        name: under which recipes and pairs name it.
        compare: the async function that decides.
        kinds: the kinds of candidates that it understands.
        roles: the roles that need a model of their own, which stays the same whatever is trained.
    """

    name: str
    compare: Callable[[Case], Awaitable[Verdict]]
    kinds: tuple[Kind, ...]
    roles: tuple[Role, ...]

    async def __call__(self, case: Case) -> Verdict:
        """The verdict on a case.

        Raises:
            UserError: the function raised an error, or returned what is no verdict on these candidates.
            RequestRefused: the endpoint refuses a request.
        """
        whose = f"question {case.question.id}: judge {self.name} of {case.stage}"
        with faults_of(lambda: whose, self.compare, RequestRefused):
            return _checked(await awaited(self.compare(case)), len(case.candidates))


def _checked(verdict: object, candidates: int) -> Verdict:
    """The result of a judge, checked to be a verdict on that many candidates.

    Raises:
        Misreturn: it is none.
    """
    if not isinstance(verdict, Verdict):
        raise Misreturn(f"returned {verdict!r}, which is no Verdict")
    if problem := misfit(vars(verdict), Verdict):
        raise Misreturn(f"returned a Verdict whose {problem}")
    for name in ("scores", "noise"):
        if len(values := getattr(verdict, name)) not in (0, candidates):
            raise Misreturn(f"returned {len(values)} {name} for {candidates} candidates")
    named = [verdict.chosen, verdict.rejected, *verdict.best, *verdict.worst, *verdict.worse, *chain(*verdict.orders)]
    if outside := [index for index in named if index is not None and index not in range(candidates)]:
        raise Misreturn(f"returned candidate {outside[0]}, and there are 0 to {candidates - 1}; None is no candidate")
    if verdict.chosen is not None and verdict.chosen == verdict.rejected:
        raise Misreturn(f"returned candidate {verdict.chosen} as both chosen and rejected")
    # NumPy's numbers are not JSON's.
    return replace(verdict, scores=_rounded(verdict.scores), noise=_rounded(verdict.noise))


def judge(
    *kinds: Kind, roles: tuple[Role, ...] = ()
) -> Callable[[Callable[[Case], Coroutine[Any, Any, Verdict]]], Judge]:
    """Decorates an async function from a case to a verdict: makes it a judge of these kinds of candidates, or of all.

    Raises:
        ValueError: there is no such kind.
    """
    if unknown := [kind for kind in kinds if kind not in get_args(Kind)]:
        raise ValueError(f"@judge: {unknown[0]!r} is no kind; write @judge() or some of {get_args(Kind)}")
    return lambda compare: Judge(compare.__name__, compare, kinds or get_args(Kind), roles)


def by_score(case: Case, scores: Sequence[float | None], noise: Sequence[float | None] = ()) -> Verdict:
    """Pair the highest score of a whole candidate with the lowest, or with the `hardest`; ties are broken at random.

    The best score has to be above 0, which stands for a candidate that is of no use: negative lengths never make a
    pair. The rejected score is lower by at least `min_gap`, and by more than `noise_margin` times the standard error of
    the difference of two independent scores, and its length differs by at most `max_length_gap`. Of equal scores, the
    less noisy one is taken, and of these one with a worse candidate within that length.

    Args:
        case: the candidates.
        scores: one per candidate, finite; None excludes it from the pair.
        noise: the standard error of each score; empty if unknown.
    """
    errors = [error or 0.0 for error in noise] or [0.0] * len(scores)
    undecided = Verdict(scores=_rounded(scores), noise=_rounded(noise))
    scored = {index: value for index, value in enumerate(scores) if value is not None}
    if not scored:
        return replace(undecided, reason="no candidate could be rolled forward")
    choosable = {index: (value, -errors[index]) for index, value in scored.items() if not case.cut[index]}
    if not choosable:
        return replace(undecided, reason=f"every candidate {CUT}")
    highest, precision = max(choosable.values())
    lower = {
        index: (value, errors[index])
        for index, value in scored.items()
        if highest - value >= max(case.rules.min_gap - RESOLUTION, RESOLUTION)
    }
    worse = {
        index: (value, error)
        for index, (value, error) in lower.items()
        if highest - value > case.rules.noise_margin * math.hypot(precision, error)
    }
    best = [index for index, value in choosable.items() if value == (highest, precision)]
    gap, texts = case.rules.max_length_gap, case.candidates
    # Of equally good candidates, one with a worse candidate of its length makes a pair.
    best = [one for one in best if any(is_within_gap(texts[one], texts[other], gap) for other in worse)] or best
    chosen = case.random.choice(best)
    verdict = replace(undecided, chosen=chosen, best=best)
    if highest < RESOLUTION:
        return replace(verdict, alike=True, reason=NOTHING)
    if not lower:
        return replace(verdict, alike=True, reason="candidates too much alike")
    if not worse:
        return replace(verdict, alike=True, reason="candidates differ by no more than the noise of their scores")
    worse = {index: each for index, each in worse.items() if is_within_gap(texts[chosen], texts[index], gap)}
    if not worse:
        return replace(verdict, reason=LENGTH_GAP)
    if case.rules.rejected == "hardest":
        worst = [hardest(case, chosen, {index: value for index, (value, _) in worse.items()})]
    else:
        worst = [index for index, value in worse.items() if value == min(worse.values())]
    return replace(verdict, rejected=case.random.choice(worst), worst=worst, worse=[*worse])


def is_within_gap(one: str, other: str, gap: float | None) -> bool:
    """Whether the lengths of two texts in words differ by at most a share `gap` of the longer one; None allows all."""
    shorter, longer = sorted(len(words_in(text)) for text in (one, other))
    return gap is None or longer - shorter <= gap * longer


def hardest(case: Case, chosen: int, worse: Mapping[int, float]) -> int:
    """The worse candidate that differs least from the chosen one in anything but content.

    In this order: neither cut nor empty; a length within a factor of two of the chosen one's; the lowest score; the
    closest length. So a cut or an empty completion is rejected only if no other candidate is worse than the chosen.

    Args:
        case: the candidates.
        chosen: index of the chosen one.
        worse: index -> score of those that may be rejected.
    """

    def order(index: int) -> tuple[bool, bool, float, float, int]:
        difference = abs(math.log(len(case.candidates[index]) / len(case.candidates[chosen])))
        poor = case.cut[index] or not any(map(str.isalnum, case.candidates[index]))
        return poor, difference > SIMILAR, worse[index], difference, index

    return min(worse, key=order)


def by_mean(case: Case, samples: Sequence[Sequence[float | None]]) -> Verdict:
    """As `by_score`, by the mean of several scores per candidate and its standard error (unknown for one score).

    A candidate with one score of None has none.
    """
    whole = [[] if None in values else [value for value in values if value is not None] for values in samples]
    means = [statistics.fmean(values) if values else None for values in whole]
    if case.rules.continuations == 1:
        return by_score(case, means)
    noise = [statistics.stdev(values) / math.sqrt(len(values)) if values else None for values in whole]
    return by_score(case, means, noise)


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(float(value), 4) for value in values]
