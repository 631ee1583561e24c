"""A rollout for training data: the method runs as at inference, and at the trained stages its replies become rows."""

import hashlib
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from notewriter.artifacts.rollouts import Drop, JudgeAgreement, PairsRollout, StageUsage, UnreadableReplies
from notewriter.data.judges.case import Verdict
from notewriter.data.recipe import Recipe, calls_of, methods_of
from notewriter.ground.records import Completion, Message, Passage, Question, Sampling
from notewriter.models.client import RequestRefused
from notewriter.retrieval.chain import find
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import MethodEnded, Rollout

READS_EVERYTHING = 1000
"""The `top_k` from which a method's default means all documents (MemAgent, In-context), not the best few."""


class Prompt(NamedTuple):
    """A prompt at a trained stage.

    Args:
        stage: the stage.
        messages: the prompt as messages.
        sampling: how it replies at inference.
        sample: the number of the draw of this prompt.
        variables: the variables of the prompt.
    """

    stage: Stage
    messages: list[Message]
    sampling: Sampling
    sample: int
    variables: dict[str, Any]


@dataclass
class Attempt:
    """The outcome of a prompt at a trained stage: rows, or the reason why there are none.

    Args:
        stage: the stage.
        rows: the pairs or the conversation.
        reason: why there are no rows.
        verdict: what judges said of the candidates, if there were any.
    """

    stage: str
    rows: list[Any] = field(default_factory=list)
    reason: str = ""
    verdict: Verdict = field(default_factory=Verdict)


@dataclass
class Harvest:
    """The yield and cost of one question's rollouts.

    Args:
        attempts: one entry per prompt at a trained stage, in the order in which the prompts came up.
        refused: the methods that ended because the endpoint refused a request.
        usage: (stage, role) -> calls and tokens of every distinct call.
        counted: digests of these calls, which several methods may make.
    """

    attempts: list[Attempt] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    usage: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    counted: set[bytes] = field(default_factory=set)

    @property
    def rows(self) -> list[Any]:
        """The rows."""
        return [row for attempt in self.attempts for row in attempt.rows]

    @property
    def drops(self) -> list[Drop]:
        """The prompts without a row, and the methods that ended early."""
        drops = [Drop(stage=attempt.stage, reason=attempt.reason) for attempt in self.attempts if attempt.reason]
        # Not the endpoint's own message, which would make every refusal a separate reason; the trace has it.
        return drops + [Drop(stage=f"{method}/*", reason="the endpoint refused the request") for method in self.refused]

    def record(self, question_id: str, traces: list[dict[str, Any]]) -> PairsRollout:
        """The line of the journal."""
        record: PairsRollout = {
            "question_id": question_id,
            "rows": self.rows,
            "drops": self.drops,
            "agreements": [
                JudgeAgreement(stage=attempt.stage, agreed=agreed)
                for attempt in self.attempts
                for agreed in attempt.verdict.agreements
            ],
            "unreadable": [
                UnreadableReplies(stage=attempt.stage, replies=attempt.verdict.unreadable)
                for attempt in self.attempts
                if attempt.verdict.unreadable
            ],
            "usage": [
                StageUsage(stage=stage, role=role, tokens=dict(self.usage[stage, role]))
                for stage, role in sorted(self.usage)
            ],
            "traces": traces,
        }
        if refusals := [attempt.verdict.refusal for attempt in self.attempts if attempt.verdict.refusal]:
            record["refusals"] = refusals
        return record


class HarvestRollout(Rollout, ABC):
    """A rollout in which `train` replies at the trained stages, and the model, as at inference, at all others."""

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
        self._found: dict[tuple[str, int], list[Passage]] = {}
        self._to_train: dict[str, int] | None = None

    @abstractmethod
    async def train(self, attempt: Attempt, prompt: Prompt) -> str | None:
        """The reply at a trained stage, or None, which leaves the reply to the model. Completes the `attempt`."""

    async def run(self, to_the_end: bool = True) -> None:
        """Run the method and record its answer, or the error that ended it, in the trace.

        Args:
            to_the_end: false: stop without an answer as soon as the method can no longer reach a trained stage, if
                these stages declare how often they are called (`Stage.calls`).
        """
        if not to_the_end:
            self._to_train = calls_of(self._method, self._options, self._recipe.stages)
        try:
            self.trace.answer = await self.follow(self._method, self._options)
        except _Trained:
            pass
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
        """The reply of `train` at a trained stage; one completion at others, and where that has none."""
        if stage.name in self._recipe.stages:
            # Before anything is awaited, so that the order of concurrent prompts is fixed.
            attempt = Attempt(stage.name)
            self._harvest.attempts.append(attempt)
            messages = self.resources.prompts.render(stage.name, **variables)
            sampling = replace(self.sampling(stage), stop=stop, json_schema=json_schema)
            reply = await self.train(attempt, Prompt(stage, messages, sampling, sample, variables))
            if self._to_train is not None:
                self._to_train[stage.name] -= 1
            if reply is not None:
                return reply
        return await super().generate(stage, stop=stop, json_schema=json_schema, sample=sample, **variables)

    async def complete(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """One completion, recorded; ends the method where nothing is left to train."""
        self._check_untrained()
        return await super().complete(stage, messages, sampling, sample)

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """The best passages for a query, remembered for `search`; ends the method where nothing is left to train."""
        self._check_untrained()
        passages = await super().retrieve(query, top_k)
        self._found[query, top_k] = passages
        return passages

    def _check_untrained(self) -> None:
        if self._to_train is not None and not any(left > 0 for left in self._to_train.values()):
            raise _Trained

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """A search on behalf of a judge or of the gold evidence; not in the trace, and not repeated."""
        if (query, top_k) not in self._found:
            assert self.resources.retriever is not None
            self._found[query, top_k] = (await find(self.resources.retriever, query, top_k, self.question)).passages
        return self._found[query, top_k]

    async def call(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int) -> Completion:
        """A call of a model; its tokens are counted unless this question made the same call before."""
        completion = await super().call(stage, messages, sampling, sample)
        # A digest, since prompts are long and a question makes a hundred calls.
        digest = hashlib.sha256(
            repr((stage.role, messages, sampling, sample)).encode("utf-8", "backslashreplace")
        ).digest()
        if digest not in self._harvest.counted:
            self._harvest.counted.add(digest)
            self._harvest.usage.setdefault((stage.name, stage.role), Counter()).update(
                calls=1, prompt_tokens=completion.prompt_tokens, completion_tokens=completion.completion_tokens
            )
        return completion


class _Trained(MethodEnded):
    """Raised once every prompt at a trained stage has its reply: the rest of the method yields nothing."""


async def harvest_rollouts(
    question: Question, resources: Resources, recipe: Recipe, rollout_type: type[HarvestRollout]
) -> PairsRollout:
    """Run the methods of the trained stages on one question; returns the line of the journal."""
    harvest, traces = Harvest(), []
    for name in methods_of(recipe.stages):
        method, options = recipe.methods[name]
        options = _with_top_k(method, options, question, recipe)
        rollout = rollout_type(question, method, options, resources, recipe, harvest)
        await rollout.run(to_the_end=False)
        traces.append(rollout.trace.to_dict())
    return harvest.record(question.id, traces)


def rows_by_stage(record: Mapping[str, Any]) -> dict[str, int]:
    """The number of rows in the record of a question, by stage, for the progress bar; a chain has none yet."""
    return Counter(row["stage"] for row in record.get("rows", ()))


def _with_top_k(method: Method, options: Mapping[str, Any], question: Question, recipe: Recipe) -> dict[str, Any]:
    """A method's options, completed with a question's passages per retrieval if the method retrieves.

    DNAlign varies them so that prompts differ in length (the authors' code: uniform in 3..9). A method that reads
    whatever there is keeps its own number.
    """
    if not method.retrieves:
        return dict(options)
    drawn = random.Random(f"{recipe.seed} {question.id} top_k").randint(*recipe.top_k_range)
    own: int = method.options["top_k"]
    return {"top_k": own if own >= READS_EVERYTHING else drawn, **options}
