"""Gold rollouts: which answers are written for a prompt, from what the prompt tells."""

import pytest

from notewriter.data import sampling
from notewriter.data.build_gold import UNKNOWN, UNTOLD, roll_out
from notewriter.data.judges import metric
from notewriter.data.recipe import PreparedMethod, Recipe
from notewriter.ground.records import Completion, Passage, Question
from notewriter.methods import METHODS
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources


class Model:
    async def complete(self, messages, sampling, *, sample=0, affinity=""):
        return Completion("No idea.", "stop", 50, 2, 0, 0.1)


@pytest.fixture
def reply():
    """What is trained as the reply to a question given one passage, or why nothing is."""

    async def roll(question, passage, stage="vanilla/answer", extractive=()):
        class Shelf:
            def search(self, query, top_k):
                return [Passage("p1", "Films", passage)]

        method = stage.partition("/")[0]
        recipe = Recipe(stages=[stage], methods={method: PreparedMethod(METHODS[method], {})})
        prompts = Prompts(extractive=extractive)
        record = await roll_out(question, Resources({"policy": Model()}, prompts, Shelf()), recipe)
        rows = [row["messages"][-1]["content"] for row in record["rows"]]
        return rows + [drop["reason"] for drop in record["drops"]]

    return roll


async def test_an_answer_that_only_the_question_names_is_not_trained(reply):
    question = Question("q1", "Which film came out first, Osk or Varn?", ("Osk",))
    assert await reply(question, "Varn came out in 1999.") == [UNTOLD]
    assert await reply(question, "Varn came out after Osk.") == ["Osk"]


async def test_of_several_answers_the_first_that_the_prompt_tells_is_written(reply):
    question = Question("q1", "Who built the bridge?", ("Mira Tolen", "Mira", "M. Tolen"))
    assert await reply(question, "Mira built the bridge.") == ["Mira"]
    assert await reply(question, "The bridge is by Mira Tolen.") == ["Mira Tolen"]
    assert await reply(question, "The bridge is old.") == [UNTOLD]


@pytest.mark.parametrize(
    ("facts", "trained"),
    [
        (("Osk lies on the Ume",), "[A]"),
        # Parts of sentences, which together are no sentence of the passage.
        (("Osk lies on the Ume", "Mira built its bridge"), UNKNOWN),
    ],
)
async def test_evidence_whose_sentences_cannot_be_named_is_no_reply_at_an_extractive_stage(reply, facts, trained):
    question = Question("q1", "Where does Osk lie?", ("on the Ume",), supporting_facts=facts)
    passage = "Osk lies on the Ume, a river. Mira built its bridge in 1871."
    stage = "recomp/compress"
    assert await reply(question, passage, stage, extractive=[stage]) == [trained]


@pytest.mark.parametrize(
    ("method", "options", "top_k"),
    [
        ("vanilla", {}, 2),
        ("vanilla", {"top_k": 5}, 5),
        # They read everything.
        ("in_context", {}, 1000),
        ("mem_agent", {}, 10_000),
        ("mem_agent", {"top_k": 5}, 5),
        ("direct", {}, None),
    ],
)
@pytest.mark.parametrize("roll", [roll_out, sampling.roll_out])
async def test_the_passages_per_retrieval_are_drawn_for_methods_that_read_the_best_few(roll, method, options, top_k):
    asked = []

    class Shelf:
        def search(self, query, top_k):
            asked.append(top_k)
            return [Passage("p1", "Films", "Osk came out in 1999.")]

    stage = f"{method}/answer"
    prepared = {method: PreparedMethod(METHODS[method], options)}
    recipe = Recipe(stages=[stage], judges={stage: [metric]}, methods=prepared, top_k_range=(2, 2))
    question = Question("q1", "When did Osk come out?", ("1999",))
    await roll(question, Resources({"policy": Model()}, Prompts(), Shelf()), recipe)
    assert asked == [top_k] * (top_k is not None)


async def test_a_yes_or_no_is_told_by_anything(reply):
    assert await reply(Question("q1", "Is the bridge old?", ("yes",)), "The bridge is from 1871.") == ["yes"]
