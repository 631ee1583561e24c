"""The sampling rollout: a method runs as always, and at the stages being trained its choices become pairs."""

import asyncio
import contextlib
import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from data_construction.gold import GOLD
from data_construction.hygiene import pair_fault
from data_construction.judges import Case, Judge, Verdict, decide
from data_construction.pairs_format import SCHEMA
from notewriter.artifacts.traces import Gold, TraceRecord
from notewriter.method import Method, Stage
from notewriter.models.client import RequestRefused
from notewriter.records import Completion, Message, Passage, Question, Sampling
from notewriter.rollouts.parsing import without_thinking
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout


@dataclass(frozen=True)
class Recipe:
    """How candidates are drawn and judged.

    `judges` maps the stages being trained to their judges, in the order in which they are asked. `orders` says in
    how many orders a judge's model sees the candidates. `samplers` are (temperature, top_p), one
    candidate each (DeepNote, section 3.4: 0.1, 0.5, 0.9 squared). `gold_stages` are the stages where
    what the gold evidence would write joins the candidates, for teachers too weak to find it themselves.
    """

    judges: Mapping[str, Sequence[tuple[str, Judge]]]
    samplers: Sequence[tuple[float, float]] = tuple(itertools.product((0.1, 0.5, 0.9), repeat=2))
    gold_stages: frozenset[str] = frozenset()
    orders: int = 2
    min_gap: float = 0.0
    family: str = "hotpotqa"
    seed: int | None = 0


@dataclass(frozen=True)
class Candidate:
    """A text that could be the completion: drawn from the model, or (without these two) from the gold evidence."""

    text: str
    sampling: Sampling | None = None
    completion: Completion | None = None

    @property
    def cut(self) -> bool:
        """Whether the completion was cut at its token limit."""
        return self.completion is not None and self.completion.finish_reason == "length"

    @property
    def source(self) -> dict[str, Any]:
        """Where the text comes from, as a pair tells it."""
        if self.sampling is None:
            return {"kind": "gold"}
        return {"kind": "model"} | {key: getattr(self.sampling, key) for key in ("temperature", "top_p", "max_tokens")}


@dataclass
class Judged:
    """What became of one prompt at a stage being trained: a pair's row, or the reason why there is none.

    `agreements` say whether a judge that was asked in two orders named the same both times, `unreadable` how many of
    its replies could not be read.
    """

    stage: str
    row: dict[str, Any] | None = None
    reason: str = ""
    agreements: list[bool] = field(default_factory=list)
    unreadable: int = 0


@dataclass
class Harvest:
    """What one question's sampling rollouts yield, in the order in which the prompts came up, and what they cost.

    `refused` are the methods that ended with a request that the endpoint refused; `usage` holds the tokens of
    every distinct call by stage and role.
    """

    judged: list[Judged] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    usage: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The pairs."""
        return [judged.row for judged in self.judged if judged.row]

    @property
    def drops(self) -> list[dict[str, str]]:
        """Where there is no pair, and why."""
        drops = [{"stage": judged.stage, "reason": judged.reason} for judged in self.judged if judged.reason]
        # The endpoint's words, which the trace keeps, would make every refusal a reason of its own.
        return drops + [
            {"stage": f"{method}/*", "reason": "the endpoint refused the request"} for method in self.refused
        ]

    def to_dict(self) -> dict[str, Any]:
        """What the journal keeps of it.

        These are `rows`, `drops` (stage, reason), `agreements` (stage, agreed), `unreadable` (stage, a judge's
        replies) and `usage` (stage, role, tokens).
        """
        return {
            "rows": self.rows,
            "drops": self.drops,
            "agreements": [
                {"stage": judged.stage, "agreed": agreed} for judged in self.judged for agreed in judged.agreements
            ],
            "unreadable": [
                {"stage": judged.stage, "replies": judged.unreadable} for judged in self.judged if judged.unreadable
            ],
            "usage": [
                {"stage": stage, "role": role, "tokens": dict(self.usage[stage, role])}
                for stage, role in sorted(self.usage)
            ],
        }


@dataclass(frozen=True)
class DropRecord:
    """A prompt without a pair."""

    stage: str
    reason: str


@dataclass(frozen=True)
class AgreementRecord:
    """Whether a judge that was asked in two orders named the same."""

    stage: str
    agreed: bool


@dataclass(frozen=True)
class UnreadableRecord:
    """How many replies of a judge could not be read."""

    stage: str
    replies: int


@dataclass(frozen=True)
class UsageRecord:
    """What a stage's calls cost."""

    stage: str
    role: str
    tokens: dict[str, int]


@dataclass(frozen=True)
class RowRecord:
    """Of a pair's row what its statistics need; the rest is for the columns of the Parquet file."""

    stage: str
    question_id: str
    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]


@dataclass(frozen=True)
class HarvestRecord:
    """A finished question as the journal keeps it: what `Harvest.to_dict` tells, and the traces."""

    question_id: str
    rows: list[RowRecord]
    drops: list[DropRecord]
    agreements: list[AgreementRecord]
    usage: list[UsageRecord]
    traces: list[TraceRecord]
    unreadable: list[UnreadableRecord] = field(default_factory=list)


class SamplingRollout(Rollout):
    """A rollout that draws several candidates at the stages being trained and goes on with the better one."""

    def __init__(
        self,
        question: Question,
        method: Method,
        options: Mapping[str, Any],
        resources: Resources,
        recipe: Recipe,
        harvest: Harvest,
    ) -> None:
        super().__init__(question, method.name, resources)
        self._method = method
        self._options = options
        self._recipe = recipe
        self._harvest = harvest
        self._counted: set[bytes] = set()
        self._said: dict[str, list[Completion]] = {}
        self._found: dict[tuple[str, int], list[Passage]] = {}

    async def run(self) -> None:
        """Run the method; the trace gets its answer, or why there is none."""
        try:
            self.trace.answer = await self._method.run(self.question.question, self, **self._options)
        except RequestRefused as refusal:
            self.trace.error = str(refusal)
            self._harvest.refused.append(self.trace.method)

    async def generate(
        self,
        stage: Stage,
        *,
        stop: tuple[str, ...] = (),
        json_schema: dict[str, Any] | None = None,
        sample: int = 0,
        **variables: Any,
    ) -> str:
        """One completion; at a stage being trained, the one of several that the judge prefers.

        Where there is no pair the method goes on with the judge's favourite if it has one, else with
        the first candidate, which is the one drawn most conservatively.
        """
        if stage.name not in self._recipe.judges:
            return await super().generate(stage, stop=stop, json_schema=json_schema, sample=sample, **variables)
        # Its place is taken before anything is waited for, so that prompts that are answered at once keep their order.
        judged = Judged(stage.name)
        self._harvest.judged.append(judged)
        messages = self.resources.prompts.render(stage.name, **variables)
        sampling = replace(self.sampling(stage), stop=stop, json_schema=json_schema)
        candidates = await self._candidates(stage, messages, sampling, sample, variables)
        verdict = await self._judge(stage, messages, variables, candidates)
        judged.agreements, judged.unreadable = verdict.agreements, verdict.unreadable
        if verdict.chosen is not None and verdict.rejected is not None:
            chosen, rejected = candidates[verdict.chosen], candidates[verdict.rejected]
            row = self._row(stage.name, messages, chosen, rejected, verdict, candidates)
            judged.reason = pair_fault(row, chosen.cut) or ""
            judged.row = None if judged.reason else row
        else:
            judged.reason = verdict.reason
        taken = candidates[verdict.chosen or 0] if candidates else None
        if taken and taken.sampling and taken.completion:
            self.record(stage, messages, taken.sampling, taken.completion)
        elif taken:
            self.trace.steps.append(Gold(stage.name, stage.role, messages, taken.text))
        text = taken.text if taken else ""
        self._remember(stage, messages, _said(text))
        return text

    async def complete(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """One completion, recorded and remembered for when candidates are rolled forward."""
        completion = await super().complete(stage, messages, sampling, sample)
        self._remember(stage, messages, completion)
        return completion

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """The passages that fit the query best, remembered likewise."""
        passages = await super().retrieve(query, top_k)
        self._found[query, top_k] = passages
        return passages

    def _remember(self, stage: Stage, messages: list[Message], completion: Completion) -> None:
        self._said.setdefault(_key(stage, messages), []).append(completion)

    async def draw(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """One completion, its tokens counted unless the same call was made before for this question."""
        completion = await super().draw(stage, messages, sampling, sample)
        # The digest, since prompts are long and a question makes a hundred calls.
        call = hashlib.sha256(
            repr((stage.role, messages, sampling, sample)).encode("utf-8", "backslashreplace")
        ).digest()
        if call not in self._counted:
            self._counted.add(call)
            self._harvest.usage.setdefault((stage.name, stage.role), Counter()).update(
                calls=1, prompt_tokens=completion.prompt_tokens, completion_tokens=completion.completion_tokens
            )
        return completion

    async def _candidates(
        self,
        stage: Stage,
        messages: list[Message],
        sampling: Sampling,
        sample: int,
        variables: dict[str, Any],
    ) -> list[Candidate]:
        """The distinct, non-empty completions in the samplers' order; the gold evidence comes last."""
        samplings = [
            replace(sampling, temperature=temperature, top_p=top_p) for temperature, top_p in self._recipe.samplers
        ]
        # A sampling that is listed twice is drawn twice; the cache tells draws apart by their number.
        repeats = [
            samplings[:position].count(each) + sample * len(samplings) for position, each in enumerate(samplings)
        ]
        drawn = await asyncio.gather(
            *(self.draw(stage, messages, *each) for each in zip(samplings, repeats, strict=True))
        )
        candidates: dict[str, Candidate] = {}
        for each, completion in zip(samplings, drawn, strict=True):
            candidate = Candidate(without_thinking(completion.text).strip(), each, completion)
            known = candidates.get(candidate.text)
            if candidate.text and (known is None or (known.cut and not candidate.cut)):
                candidates[candidate.text] = candidate
        if stage.name in self._recipe.gold_stages:
            gold = await GOLD[stage.kind](self.question, variables, self._search)
            if gold is not None and gold not in candidates:
                candidates[gold] = Candidate(gold)
        return list(candidates.values())

    async def _judge(
        self, stage: Stage, messages: list[Message], variables: dict[str, Any], candidates: list[Candidate]
    ) -> Verdict:
        if len(candidates) < 2:
            return Verdict(reason="fewer than two distinct candidates")
        key = _key(stage, messages)
        case = Case(
            question=self.question,
            kind=stage.kind,
            request="\n\n".join(message["content"] for message in messages),
            variables=variables,
            candidates=[candidate.text for candidate in candidates],
            choosable=[not candidate.cut for candidate in candidates],
            ask=self._ask_judge,
            search=self._search,
            finish=lambda text: self._finish(key, text),
            next_query=lambda text: self._next_query(key, text),
            family=self._recipe.family,
            # Chance that does not depend on the order in which questions, or prompts of one, happen to run.
            random=random.Random(f"{self._recipe.seed} {self.question.id} {key}"),
            orders=self._recipe.orders,
            min_gap=self._recipe.min_gap,
        )
        return await decide(self._recipe.judges[stage.name], case)

    async def _ask_judge(self, stage: Stage, json_schema: dict[str, Any] | None = None, **variables: Any) -> str:
        """A judge's reply: the method did not ask for it, so it is not in the trace."""
        messages = self.resources.prompts.render(stage.name, **variables)
        sampling = replace(self.sampling(stage), json_schema=json_schema)
        return (await self.draw(stage, messages, sampling)).text.strip()

    async def _search(self, query: str, top_k: int) -> list[Passage]:
        """A search on behalf of a judge, not in the trace either; one that was made before is not made again."""
        if (query, top_k) not in self._found:
            assert self.resources.retriever is not None
            self._found[query, top_k] = await asyncio.to_thread(self.resources.retriever.search, query, top_k)
        return self._found[query, top_k]

    async def _finish(self, key: str, text: str) -> str | None:
        """The answer that the method comes to where it gets `text` for the prompt `key`; None: the endpoint refuses."""
        try:
            return await self._method.run(self.question.question, Continuation(self, key, text), **self._options)
        except RequestRefused:
            return None

    async def _next_query(self, key: str, text: str) -> str | None:
        """What the method searches for first where it gets `text` for the prompt `key`; None: for nothing."""
        continuation = Continuation(self, key, text, until_search=True)
        with contextlib.suppress(_Searched, RequestRefused):
            await self._method.run(self.question.question, continuation, **self._options)
        return continuation.query

    def _row(
        self,
        stage: str,
        messages: list[Message],
        chosen: Candidate,
        rejected: Candidate,
        verdict: Verdict,
        candidates: list[Candidate],
    ) -> dict[str, Any]:
        scores = dict(zip((candidate.text for candidate in candidates), verdict.scores, strict=False))
        drawn = [candidate.completion for candidate in candidates if candidate.completion]
        return {
            "schema": SCHEMA,
            "prompt": messages,
            "chosen": [{"role": "assistant", "content": chosen.text}],
            "rejected": [{"role": "assistant", "content": rejected.text}],
            "stage": stage,
            "method": self.trace.method,
            "question_id": self.question.id,
            "top_k": self._options.get("top_k"),
            "chosen_source": chosen.source,
            "rejected_source": rejected.source,
            "chosen_score": scores.get(chosen.text),
            "rejected_score": scores.get(rejected.text),
            "judge": verdict.judge,
            "judge_replies": verdict.replies,
            "judge_orders": verdict.orders,
            "prompt_tokens": drawn[0].prompt_tokens if drawn else None,
            "chosen_tokens": chosen.completion.completion_tokens if chosen.completion else None,
            "rejected_tokens": rejected.completion.completion_tokens if rejected.completion else None,
        }


class _Searched(Exception):
    """A continuation has come to its first search, which is all that was asked of it."""


class Continuation(Rollout):
    """The method from its start, with one text tried out at a prompt of a sampling rollout, and on to its end.

    Up to that prompt the sampling rollout's own completions and passages come back, each by the prompt or the query
    that it belongs to, without a call; so the method, which is a function of these alone, arrives at the same
    prompt and gets the text. What comes after it is completed as at inference, one completion a prompt. Its calls
    are cached and counted like any other, but are no steps of the sampling rollout.
    """

    def __init__(self, origin: SamplingRollout, key: str, text: str, until_search: bool = False) -> None:
        super().__init__(origin.question, origin.trace.method, origin.resources)
        self.query: str | None = None
        self._origin = origin
        self._tried = _said(text)
        self._until_search = until_search
        self._arrived = False
        self._replies = {known: list(completions) for known, completions in origin._said.items()}
        self._replies.setdefault(key, []).append(self._tried)

    async def complete(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """What was said to this prompt, each reply once and in its order, then new completions."""
        replies = self._replies.get(_key(stage, messages))
        if not replies:
            return await self._origin.draw(stage, messages, sampling, sample)
        completion = replies.pop(0)
        self._arrived = self._arrived or completion is self._tried
        return completion

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """What was found before, or is found now."""
        if self._arrived and self._until_search:
            self.query = query
            raise _Searched
        return await self._origin._search(query, top_k)


def _key(stage: Stage, messages: list[Message]) -> str:
    return repr((stage.name, messages))


def _said(text: str) -> Completion:
    """A text in the place of a completion, where a candidate is tried out or gone on with."""
    return Completion(text, "stop", 0, 0, 0, 0.0)
