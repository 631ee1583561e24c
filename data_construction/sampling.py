"""The sampling rollout: a method runs as always, and at the stages being trained its choices become pairs."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from data_construction.gold import GOLD
from data_construction.hygiene import pair_fault
from data_construction.judges import Case, Judge, Verdict
from data_construction.pairs_format import SCHEMA
from notewriter.records import Completion, Gold, Message, Passage, Question, Sampling
from notewriter.rollout import Resources, Rollout


@dataclass(frozen=True)
class Recipe:
    """How candidates are drawn and judged.

    `judges` maps the stages being trained to their judge. `samplers` are (temperature, top_p), one
    candidate each (DeepNote, section 3.4: 0.1, 0.5, 0.9 squared). `gold_stages` are the stages where
    what the gold evidence would write joins the candidates, for teachers too weak to find it themselves.
    """

    judges: Mapping[str, tuple[str, Judge]]
    samplers: Sequence[tuple[float, float]] = tuple(itertools.product((0.1, 0.5, 0.9), repeat=2))
    gold_stages: frozenset[str] = frozenset()
    min_gap: float = 0.0
    family: str = "hotpotqa"
    seed: int = 0


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

    `agreed` says whether a judge that was asked in two orders came to one verdict.
    """

    stage: str
    row: dict[str, Any] | None = None
    reason: str = ""
    agreed: bool | None = None


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
        """`rows`, `drops` (stage, reason), `agreements` (stage, agreed) and `usage` (stage, role, tokens)."""
        judged = [each for each in self.judged if each.agreed is not None]
        return {
            "rows": self.rows,
            "drops": self.drops,
            "agreements": [{"stage": each.stage, "agreed": each.agreed} for each in judged],
            "usage": [
                {"stage": stage, "role": role, "tokens": dict(self.usage[stage, role])}
                for stage, role in sorted(self.usage)
            ],
        }


class SamplingRollout(Rollout):
    """A rollout that draws several candidates at the stages being trained and goes on with the better one."""

    def __init__(
        self, question: Question, method: str, resources: Resources, recipe: Recipe, harvest: Harvest, top_k: int | None
    ) -> None:
        super().__init__(question, method, resources)
        self._recipe = recipe
        self._harvest = harvest
        self._top_k = top_k
        self._counted: set[str] = set()

    async def generate(
        self,
        stage: str,
        *,
        role: str = "policy",
        stop: tuple[str, ...] = (),
        json_schema: dict[str, Any] | None = None,
        **variables: Any,
    ) -> str:
        """One completion; at a stage being trained, the one of several that the judge prefers.

        Where there is no pair the method goes on with the judge's favourite if it has one, else with
        the first candidate, which is the one drawn most conservatively.
        """
        if stage not in self._recipe.judges:
            return await super().generate(stage, role=role, stop=stop, json_schema=json_schema, **variables)
        # Its place is taken before anything is waited for, so that prompts that are answered at once keep their order.
        judged = Judged(stage)
        self._harvest.judged.append(judged)
        messages = self.resources.prompts.render(stage, **variables)
        sampling = replace(self.sampling(stage), stop=stop, json_schema=json_schema)
        candidates = await self._candidates(stage, role, messages, sampling, variables)
        verdict, judge = await self._judge(stage, messages, variables, candidates)
        if verdict.chosen is not None and verdict.rejected is not None:
            chosen, rejected = candidates[verdict.chosen], candidates[verdict.rejected]
            row = self._row(stage, messages, chosen, rejected, verdict, judge, candidates)
            judged.reason = pair_fault(row, chosen.cut) or ""
            judged.row = None if judged.reason else row
        else:
            judged.reason = verdict.reason
        taken = candidates[verdict.chosen or 0] if candidates else None
        if taken and taken.sampling and taken.completion:
            self.record(stage, role, messages, taken.sampling, taken.completion)
        elif taken:
            self.trace.steps.append(Gold(stage, role, messages, taken.text))
        return taken.text if taken else ""

    async def draw(
        self, stage: str, role: str, messages: list[Message], sampling: Sampling, sample: int = 0
    ) -> Completion:
        """One completion, its tokens counted unless the same call was made before for this question."""
        completion = await super().draw(stage, role, messages, sampling, sample)
        call = repr((role, messages, sampling, sample))
        if call not in self._counted:
            self._counted.add(call)
            self._harvest.usage.setdefault((stage, role), Counter()).update(
                calls=1, prompt_tokens=completion.prompt_tokens, completion_tokens=completion.completion_tokens
            )
        return completion

    async def _candidates(
        self, stage: str, role: str, messages: list[Message], sampling: Sampling, variables: dict[str, Any]
    ) -> list[Candidate]:
        """The distinct, non-empty completions in the samplers' order; the gold evidence comes last."""
        samplings = [
            replace(sampling, temperature=temperature, top_p=top_p) for temperature, top_p in self._recipe.samplers
        ]
        # A sampling that is listed twice is drawn twice; the cache tells draws apart by their number.
        repeats = [samplings[:position].count(sampling) for position, sampling in enumerate(samplings)]
        drawn = await asyncio.gather(
            *(self.draw(stage, role, messages, *each) for each in zip(samplings, repeats, strict=True))
        )
        candidates: dict[str, Candidate] = {}
        for each, completion in zip(samplings, drawn, strict=True):
            candidate = Candidate(completion.text.strip(), each, completion)
            known = candidates.get(candidate.text)
            if candidate.text and (known is None or (known.cut and not candidate.cut)):
                candidates[candidate.text] = candidate
        if stage in self._recipe.gold_stages:
            gold = await GOLD[stage](self.question, variables, self._search)
            if gold is not None and gold not in candidates:
                candidates[gold] = Candidate(gold)
        return list(candidates.values())

    async def _judge(
        self, stage: str, messages: list[Message], variables: dict[str, Any], candidates: list[Candidate]
    ) -> tuple[Verdict, str]:
        name, judge = self._recipe.judges[stage]
        if len(candidates) < 2:
            return Verdict(reason="fewer than two distinct candidates"), name
        case = Case(
            question=self.question,
            stage=stage,
            variables=variables,
            candidates=[candidate.text for candidate in candidates],
            choosable=[not candidate.cut for candidate in candidates],
            ask=self._ask_judge,
            search=self._search,
            family=self._recipe.family,
            # Chance that does not depend on the order in which questions, or prompts of one, happen to run.
            random=random.Random(f"{self._recipe.seed} {self.question.id} {stage} {messages}"),
            min_gap=self._recipe.min_gap,
        )
        return await judge(case), name

    async def _ask_judge(self, prompt: str, **variables: Any) -> str:
        """A judge's reply: the method did not ask for it, so it is not in the trace."""
        messages = self.resources.prompts.render(prompt, **variables)
        return (await self.draw(prompt, "judge", messages, self.sampling(prompt))).text.strip()

    async def _search(self, query: str, top_k: int) -> list[Passage]:
        """A search on behalf of a judge, not in the trace either."""
        assert self.resources.retriever is not None
        return await asyncio.to_thread(self.resources.retriever.search, query, top_k)

    def _row(
        self,
        stage: str,
        messages: list[Message],
        chosen: Candidate,
        rejected: Candidate,
        verdict: Verdict,
        judge: str,
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
            "top_k": self._top_k,
            "chosen_source": chosen.source,
            "rejected_source": rejected.source,
            "chosen_score": scores.get(chosen.text),
            "rejected_score": scores.get(rejected.text),
            "judge": judge,
            "judge_replies": verdict.replies,
            "prompt_tokens": drawn[0].prompt_tokens if drawn else None,
            "chosen_tokens": chosen.completion.completion_tokens if chosen.completion else None,
            "rejected_tokens": rejected.completion.completion_tokens if rejected.completion else None,
        }
