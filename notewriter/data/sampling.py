"""The sampling rollout: a method runs as at inference, and at the trained stages its choices become pairs."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from notewriter.artifacts.pairs import SCHEMA, Pair, SideSource, source_of
from notewriter.artifacts.rollouts import PairsRollout
from notewriter.artifacts.traces import ControlReply, GoldReply, Retrieval
from notewriter.data.dataset.faults import pair_fault
from notewriter.data.dataset.quotas import Quotas
from notewriter.data.gold_evidence import told_answer, written
from notewriter.data.harvest import Attempt, HarvestRollout, Prompt, harvest_rollouts
from notewriter.data.judges.case import LENGTH_GAP, Case, Verdict, is_within_gap
from notewriter.data.judges.tie_breaking import decide
from notewriter.data.recipe import Recipe
from notewriter.ground.records import Completion, Message, Passage, Question, Sampling
from notewriter.models.client import RequestRefused
from notewriter.rollouts.controls import Control
from notewriter.rollouts.method import Stage
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import MethodEnded, Rollout, reply_of


@dataclass(frozen=True)
class Candidate:
    """A reply to a prompt: drawn from the model, or `written` from the gold evidence or by a control.

    `text` is the reply's meaning, another text at extractive stages alone: rows have the reply, judges read the text.
    """

    text: str
    reply: str
    sampling: Sampling | None = None
    completion: Completion | None = None
    written: GoldReply | ControlReply | None = None

    @property
    def cut(self) -> bool:
        """Whether the completion was cut at its token limit."""
        return self.completion is not None and self.completion.finish_reason == "length"

    @property
    def source(self) -> SideSource:
        """The text's origin, as a pair records it."""
        if self.written:
            return {"kind": self.written.kind}
        assert self.sampling
        return source_of(self.sampling)


async def roll_out(question: Question, resources: Resources, recipe: Recipe) -> dict[str, Any]:
    """Run the methods of the trained stages on one question in the sampling rollout.

    Returns:
        A `PairsRollout`.
    """
    return dict(await harvest_rollouts(question, resources, recipe, SamplingRollout))


async def roll_out_open_stages(
    question: Question, resources: Resources, recipe: Recipe, quotas: Quotas
) -> dict[str, Any] | None:
    """As `roll_out`, for the stages below their quota and those they continue from; None if there are none."""
    stages = await quotas.open_stages(question)
    if not stages:
        return None
    record = await roll_out(question, resources, replace(recipe, stages=recipe.sampled(stages)))
    quotas.add(cast(PairsRollout, record))
    return record


class SamplingRollout(HarvestRollout):
    """A rollout that draws several candidates at the trained stages and continues with the better one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._replies: dict[str, list[Completion]] = {}

    @property
    def continuations(self) -> int:
        """The number of continuations of a candidate."""
        return self._recipe.rules.continuations

    async def train(self, attempt: Attempt, prompt: Prompt) -> str:
        """The candidate that the judge prefers.

        Without a pair, the method continues with the judge's favourite if it has one, else with the first candidate,
        which was drawn most conservatively.
        """
        stage, messages = prompt.stage, prompt.messages
        candidates = await self._candidates(prompt)
        attempt.verdict = verdict = await self._judge(prompt, candidates)
        if verdict.chosen is not None and verdict.rejected is not None:
            every = verdict.worse if self._recipe.rules.rejected == "every" else ()
            for worse in every or [verdict.rejected]:
                row = self._row(stage.name, messages, candidates, verdict, verdict.chosen, worse)
                if fault := self._fault(row, candidates[verdict.chosen], candidates[worse]):
                    attempt.reason = attempt.reason or fault
                else:
                    attempt.rows.append(row)
            attempt.reason = "" if attempt.rows else attempt.reason
        else:
            attempt.reason = verdict.reason
        taken = candidates[verdict.chosen or 0] if candidates else None
        if taken and taken.sampling and taken.completion:
            self.record(stage, messages, taken.sampling, taken.completion)
        elif taken and taken.written:
            self.trace.steps.append(taken.written)
        text = taken.text if taken else ""
        self._remember(stage, messages, _as_completion(text))
        return text

    def _fault(self, row: Pair, chosen: Candidate, rejected: Candidate) -> str | None:
        """The reason why two candidates make no pair, or None."""
        if fault := pair_fault(row, chosen.cut):
            return fault
        within = is_within_gap(chosen.text, rejected.text, self._recipe.rules.max_length_gap)
        return None if within else LENGTH_GAP

    async def complete(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """One completion, recorded, and remembered for rolling candidates forward."""
        completion = await super().complete(stage, messages, sampling, sample)
        self._remember(stage, messages, completion)
        return completion

    def _remember(self, stage: Stage, messages: list[Message], completion: Completion) -> None:
        self._replies.setdefault(_key(stage, messages), []).append(completion)

    async def _candidates(self, prompt: Prompt) -> list[Candidate]:
        """The distinct, non-empty completions in the samplers' order, or a control's texts, and the gold evidence's."""
        stage, messages, _, _, variables = prompt
        candidates: dict[str, Candidate] = {}
        texts: list[tuple[type[GoldReply | ControlReply], str | None]] = []
        if control := self.resources.control(stage.role):
            texts += [(ControlReply, self.played(each, stage, variables)) for each in (control, *control.others)]
        else:
            candidates = await self._drawn(prompt)
        if stage.name in self._recipe.gold_stages:
            words = self._recipe.gold_note_words
            gold = await written(stage.kind, self.question, variables, self.search, words)
            if gold and stage.kind == "answer":
                gold = told_answer(messages, self.question)
            texts.append((GoldReply, gold))
        for step, text in texts:
            reply = self.resources.prompts.reply_with(stage.name, text or "", variables)
            if text and reply and text not in candidates:
                candidates[text] = Candidate(text, reply, written=step(stage.name, stage.role, messages, text))
        return list(candidates.values())

    async def _drawn(self, prompt: Prompt) -> dict[str, Candidate]:
        """The distinct, non-empty completions by their text, in the samplers' order."""
        stage, messages, sampling, sample, variables = prompt
        samplings = [
            replace(sampling, temperature=temperature, top_p=top_p) for temperature, top_p in self._recipe.samplers
        ]
        # A sampling listed twice is drawn twice; the cache distinguishes draws by their number.
        repeats = [
            samplings[:position].count(each) + sample * len(samplings) for position, each in enumerate(samplings)
        ]
        drawn = await asyncio.gather(
            *(self.draw(stage, messages, *each) for each in zip(samplings, repeats, strict=True))
        )
        candidates: dict[str, Candidate] = {}
        for each, completion in zip(samplings, drawn, strict=True):
            reply = reply_of(stage, completion)
            text = self.resources.prompts.note_of(stage.name, reply, variables)
            candidate = Candidate(text, reply, each, completion)
            earlier = candidates.get(candidate.text)
            if candidate.text and (earlier is None or (earlier.cut and not candidate.cut)):
                candidates[candidate.text] = candidate
        return candidates

    async def _judge(self, prompt: Prompt, candidates: list[Candidate]) -> Verdict:
        stage, messages, _, _, variables = prompt
        if len(candidates) < 2:
            return Verdict(reason="fewer than two distinct candidates")
        key = _key(stage, messages)
        refused: list[str] = []
        case = Case(
            question=self.question,
            kind=stage.kind,
            stage=stage.name,
            request="\n\n".join(message["content"] for message in messages),
            variables=variables,
            options=self._method.options | dict(self._options),
            seen={
                passage["id"]: passage["title"]
                for step in self.trace.steps
                if isinstance(step, Retrieval)
                for passage in step.passages
            },
            candidates=[candidate.text for candidate in candidates],
            cut=[candidate.cut for candidate in candidates],
            ask=self._ask_judge,
            reader=_Reader({}, self.resources.prompts, sampling=Sampling(0.0, 1.0), rollout=self),
            search=self.search,
            finish=lambda text, number=0: self._finish(key, text, refused, number),
            next_query=lambda text: self._next_query(key, text, refused),
            # Independent of the order in which questions, or the prompts of one, happen to run.
            random=random.Random(f"{self._recipe.seed} {self.question.id} {key}"),
            rules=self._recipe.rules,
        )
        verdict = await decide(self._recipe.judges[stage.name], case)
        # Without a pair the question counts as one to ask again.
        found = verdict.rejected is not None or not refused
        return verdict if found else replace(verdict, refusal=verdict.refusal or refused[0])

    async def _ask_judge(
        self, stage: Stage, json_schema: dict[str, Any] | None = None, sample: int = 0, **variables: Any
    ) -> str:
        """A reply of a judge's model; not in the trace, since the method did not ask for it."""
        messages = self.resources.prompts.render(stage.name, **variables)
        sampling = replace(self.sampling(stage), json_schema=json_schema)
        return (await self.draw(stage, messages, sampling, sample)).text.strip()

    async def _finish(self, key: str, text: str, refused: list[str], number: int) -> str | None:
        """The method's answer if `text` is the reply to the prompt `key`; None if the endpoint refuses a request.

        Its message then is added to `refused`.
        """
        continuation = Continuation(self, key, text, number=number)
        try:
            return await continuation.follow(self._method, self._options)
        except RequestRefused as refusal:
            refused.append(str(refusal))
            return None

    async def _next_query(self, key: str, text: str, refused: list[str]) -> str | None:
        """The method's first query if `text` is the reply to the prompt `key`; None if it sends none, as `_finish`."""
        continuation = Continuation(self, key, text, until_search=True)
        try:
            await continuation.follow(self._method, self._options)
        except _Searched:
            pass
        except RequestRefused as refusal:
            refused.append(str(refusal))
        return continuation.query

    def _row(
        self,
        stage: str,
        messages: list[Message],
        candidates: list[Candidate],
        verdict: Verdict,
        best: int,
        worst: int,
    ) -> Pair:
        chosen, rejected, scores, noise = candidates[best], candidates[worst], verdict.scores, verdict.noise
        drawn = [candidate.completion for candidate in candidates if candidate.completion]
        row: Pair = {
            "schema": SCHEMA,
            "prompt": messages,
            "chosen": [{"role": "assistant", "content": chosen.reply}],
            "rejected": [{"role": "assistant", "content": rejected.reply}],
            "stage": stage,
            "method": self.trace.method,
            "question_id": self.question.id,
            "top_k": self._options.get("top_k"),
            "chosen_source": chosen.source,
            "rejected_source": rejected.source,
            "chosen_score": scores[best] if scores else None,
            "rejected_score": scores[worst] if scores else None,
            "judge": verdict.judge,
            "judge_replies": verdict.replies,
            "judge_orders": verdict.orders,
            "prompt_tokens": drawn[0].prompt_tokens if drawn else None,
            "chosen_tokens": chosen.completion.completion_tokens if chosen.completion else None,
            "rejected_tokens": rejected.completion.completion_tokens if rejected.completion else None,
        }
        if noise:
            row |= {"chosen_noise": noise[best], "rejected_noise": noise[worst]}
        return row


@dataclass(frozen=True)
class _Reader(Resources):
    """The models of a rollout for calls outside of it; they are counted as the judge's."""

    rollout: SamplingRollout | None = None

    async def complete(
        self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int, affinity: str
    ) -> Completion:
        """A completion, not in the trace."""
        assert self.rollout is not None
        return await self.rollout.call(stage, messages, sampling, sample)


class _Searched(MethodEnded):
    """Raised when a continuation has reached its first search, where it ends."""


class Continuation(Rollout):
    """The method run from its start to its end, with a given text as the reply to one prompt of a sampling rollout.

    Up to that prompt the sampling rollout's own completions and passages are replayed, looked up by prompt or query,
    without a call; the method, which depends on nothing else, reaches the same prompt and gets the text. Later prompts
    are completed as at inference, with one completion each. These calls are cached and counted like any other, but are
    not steps of the sampling rollout. Continuations with different numbers draw different completions.
    """

    def __init__(
        self, origin: SamplingRollout, key: str, text: str, *, number: int = 0, until_search: bool = False
    ) -> None:
        super().__init__(origin.question, origin.trace.method, origin.resources)
        self.query: str | None = None
        self._origin = origin
        self._tried = _as_completion(text)
        self._number = number
        self._until_search = until_search
        self._arrived = False
        self._replies = {prompt: list(completions) for prompt, completions in origin._replies.items()}
        self._replies.setdefault(key, []).append(self._tried)

    async def complete(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """The recorded replies to this prompt, each once and in order, then new completions."""
        completion = self._replayed(stage, messages)
        if completion is None:
            # The first continuation makes the calls that a single one makes.
            draw = sample * self._origin.continuations + self._number
            completion = await self._origin.draw(stage, messages, sampling, draw)
        self.record(stage, messages, sampling, completion)
        return completion

    def _controlled(self, control: Control, stage: Stage, messages: list[Message], variables: Mapping[str, Any]) -> str:
        """The reply of a control that plays the role, as `complete`."""
        if completion := self._replayed(stage, messages):
            # Later notes are written from what was read before, and counted from this one on, here too.
            self.read(variables)
            self.trace.steps.append(ControlReply(stage.name, stage.role, messages, completion.text))
            return completion.text
        return super()._controlled(control, stage, messages, variables)

    def _replayed(self, stage: Stage, messages: list[Message]) -> Completion | None:
        replies = self._replies.get(_key(stage, messages))
        if not replies:
            return None
        completion = replies.pop(0)
        self._arrived = self._arrived or completion is self._tried
        return completion

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """The passages of an earlier search for the same query, or of a new one."""
        if self._arrived and self._until_search:
            self.query = query
            raise _Searched
        return await self._origin.search(query, top_k)


def _key(stage: Stage, messages: list[Message]) -> str:
    return repr((stage.name, messages))


def _as_completion(text: str) -> Completion:
    """A candidate's text as a completion, to replay it."""
    return Completion(text, "stop", 0, 0, 0, 0.0)
