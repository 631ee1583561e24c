"""A rollout whose replies at some stages are written from the gold evidence, as conversations to learn."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from notewriter.artifacts.chains import SCHEMA, Chain
from notewriter.artifacts.rollouts import Drop, GoldRollout
from notewriter.artifacts.traces import Gold
from notewriter.data.gold import GOLD
from notewriter.data.harvest import Harvest
from notewriter.data.recipe import Recipe
from notewriter.data.sampling import SamplingRollout, with_top_k
from notewriter.evaluation.metrics.text import normalise
from notewriter.evaluation.notes import note_quality
from notewriter.ground.records import Message, Question
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

UNKNOWN = "the gold evidence has no reply"
UNTOLD = "nothing in the prompt tells the answer"


@dataclass
class Reply:
    """What came of a prompt at a gold stage: a row, or the reason why there is none."""

    stage: str
    row: Chain | None = None
    reason: str = UNKNOWN


async def roll_out(question: Question, resources: Resources, recipe: Recipe) -> dict[str, Any]:
    """Run the methods of the gold stages on one question.

    Returns:
        A `GoldRollout`.
    """
    harvest = Harvest()
    replies: list[Reply] = []
    traces = []
    for method, options in recipe.methods.values():
        options = with_top_k(method, options, question, recipe)
        rollout = WrittenRollout(question, method, options, resources, recipe, harvest, replies)
        await rollout.run(to_the_end=False)
        traces.append(rollout.trace.to_dict())
    common = harvest.record(question.id, traces)
    record: GoldRollout = {
        "question_id": question.id,
        "rows": [reply.row for reply in replies if reply.row],
        "drops": [Drop(stage=reply.stage, reason=reply.reason) for reply in replies if not reply.row] + common["drops"],
        "usage": common["usage"],
        "traces": common["traces"],
    }
    return dict(record)


class WrittenRollout(SamplingRollout):
    """A rollout in which the gold evidence replies at the stages of the recipe, and the model at all others.

    `replies` gets one entry per prompt at these stages, in the order in which the prompts come up.
    """

    def __init__(
        self,
        question: Question,
        method: Method,
        options: Mapping[str, Any],
        resources: Resources,
        recipe: Recipe,
        harvest: Harvest,
        replies: list[Reply],
    ) -> None:
        super().__init__(question, method, options, resources, recipe, harvest)
        self._written = replies

    async def generate(
        self,
        stage: Stage,
        *,
        stop: tuple[str, ...] = (),
        json_schema: dict[str, Any] | None = None,
        sample: int = 0,
        **variables: Any,
    ) -> str:
        """The gold evidence's reply; the model's at other stages and where the evidence has none."""
        if stage.name in self._recipe.judges:
            # Appended before anything is awaited, so that the order of concurrent prompts is fixed.
            reply = Reply(stage.name)
            self._written.append(reply)
            messages = self.resources.prompts.render(stage.name, **variables)
            text = await GOLD[stage.kind](self.question, variables, self._search)
            self.count_down(stage)
            if text is not None and stage.kind == "answer":
                text, reply.reason = _told_answer(messages, self.question), UNTOLD
            if text is not None:
                reply.row = {
                    "schema": SCHEMA,
                    "messages": [*messages, {"role": "assistant", "content": text}],
                    "stage": stage.name,
                    "method": self.trace.method,
                    "question_id": self.question.id,
                    "top_k": self._options.get("top_k"),
                }
                self.trace.steps.append(Gold(stage.name, stage.role, messages, text))
                return text
        # Not the sampling rollout's, which would draw candidates.
        return await Rollout.generate(self, stage, stop=stop, json_schema=json_schema, sample=sample, **variables)


def _told_answer(messages: list[Message], question: Question) -> str | None:
    """The first gold answer that a prompt contains word for word outside of the question, which names what it compares.

    A yes or no can be told by anything.
    """
    if {normalise(answer) for answer in question.answers} & {"yes", "no"}:
        return question.answers[0].strip()
    evidence = "\n".join(message["content"] for message in messages).replace(question.question, "\n")
    for answer in question.answers:
        if note_quality(evidence, replace(question, answers=(answer,))).get("note_has_answer"):
            return answer.strip()
    return None
