"""`notewriter gold`: replies from the gold evidence as conversations for SFT, a warm start before preference learning.

The methods of `gold_stages` are run as for `notewriter pairs`. At these stages the reply is written from the gold
evidence, without sampling: the supporting facts that the passages contain, a query for the first one that is missing,
the gold answer. Where the evidence cannot reply (no supporting passage was found, or an answer that nothing in the
prompt tells), the model replies and nothing is trained. Each reply becomes a conversation, the prompt as at inference
and the reply as the assistant's turn, for `training/train_sft.py --data`.
"""

from functools import partial
from typing import Any

from notewriter.artifacts.chains import SCHEMA, Conversation
from notewriter.artifacts.rollouts import GoldRollout
from notewriter.artifacts.traces import GoldReply
from notewriter.data.building import build, load_inputs, read_settings
from notewriter.data.dataset.contents import GOLD
from notewriter.data.gold_evidence import told_answer, written
from notewriter.data.harvest import Attempt, HarvestRollout, Prompt, harvest_rollouts
from notewriter.data.recipe import Recipe, read_gold_recipe
from notewriter.ground.records import Question
from notewriter.rollouts.resources import Resources

UNKNOWN = "the gold evidence has no reply"
UNTOLD = "nothing in the prompt tells the answer"


def main(argv: list[str]) -> None:
    """Write conversations; running the command again resumes it."""
    settings = read_settings(GOLD, argv, prog="notewriter gold", description=__doc__)
    recipe = read_gold_recipe(settings.arguments)
    settings, parts, selection = load_inputs(settings)
    work = partial(roll_out, recipe=recipe)
    build(GOLD, settings, parts, selection, work, description="writing")


async def roll_out(question: Question, resources: Resources, recipe: Recipe) -> dict[str, Any]:
    """Run the methods of the gold stages on one question.

    Returns:
        A `GoldRollout`.
    """
    harvest: Any = await harvest_rollouts(question, resources, recipe, WrittenRollout)
    return {key: harvest[key] for key in GoldRollout.__annotations__}


class WrittenRollout(HarvestRollout):
    """A rollout in which the gold evidence replies at the trained stages, and the model where it has no reply."""

    async def train(self, attempt: Attempt, prompt: Prompt) -> str | None:
        """The gold evidence's reply, as a conversation to learn."""
        stage, messages, _, _, variables = prompt
        words = self._recipe.gold_note_words
        text, reason = await written(stage.kind, self.question, variables, self.search, words), UNKNOWN
        if text and stage.kind == "answer":
            text, reason = told_answer(messages, self.question), UNTOLD
        # At an extractive stage there may be no sentence that holds the evidence.
        reply = self.resources.prompts.reply_with(stage.name, text or "", variables)
        if not (text and reply):
            attempt.reason = reason
            return None
        row: Conversation = {
            "schema": SCHEMA,
            "messages": [*messages, {"role": "assistant", "content": reply}],
            "stage": stage.name,
            "method": self.trace.method,
            "question_id": self.question.id,
            "top_k": self._options.get("top_k"),
        }
        attempt.rows = [row]
        self.trace.steps.append(GoldReply(stage.name, stage.role, messages, text))
        return text
