"""Search-R1: one text of thoughts, searches and the answer, continued turn by turn."""

import asyncio

import pytest
from fake_endpoint import fake_endpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.ground.records import Passage, Question
from notewriter.methods.search_r1 import as_documents, search_r1
from notewriter.models.client import Client, Endpoint
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout
from notewriter.testing import ScriptedRollout, prompt_text


def so_far(rollout):
    """The text that the model was given to continue, turn by turn."""
    return ["".join(turn["content"] for turn in told["turns"]) for told in rollout.variables("reason")]


def test_the_case_of_the_fragrance_of_a_singer():
    """The paper's case study (its comparison of Search-R1 with R1) in its actions and counts, told in other words.

    Two searches find the singer and her birthplace; a third one confirms the state; then comes the answer.
    """
    question = "Curious is a women's fragrance by a singer born in what city and state?"
    turns = [
        "<think>Whose fragrance is Curious?</think>\n<search> Curious fragrance </search>",
        "<think>It is Britney Spears's. Where was she born?</think>\n<search> Britney Spears birthplace </search>",
        "<think>McComb. I make sure of the state.</think>\n<search> McComb, Mississippi </search>",
        "<think>It is in Mississippi.</think>\n<answer> McComb, Mississippi </answer>",
    ]
    rollout = ScriptedRollout("search_r1", turns)
    assert asyncio.run(search_r1(question, rollout)) == "McComb, Mississippi"
    queries = ["Curious fragrance", "Britney Spears birthplace", "McComb, Mississippi"]
    assert rollout.searches == [(query, 3) for query in queries]
    information = [
        "\n\n<information>"
        + "\n".join(f'Doc {n}(Title: "title {query}.{n - 1}") {query}.{n - 1}' for n in (1, 2, 3))
        + "</information>\n\n"
        for query in queries
    ]
    grown = ["".join(turns[i] + information[i] for i in range(number)) for number in range(4)]
    assert so_far(rollout) == grown
    assert rollout.roles == {"reason": "policy"}
    assert rollout.trace.counts == {}


def test_a_turn_without_an_action_is_followed_by_a_notice():
    rollout = ScriptedRollout("search_r1", ["<think>Hm.</think> Mira.", "<answer>Mira</answer>"])
    assert asyncio.run(search_r1("Who?", rollout)) == "Mira"
    notice = Prompts().render("search_r1/notice")[0]["content"]
    assert so_far(rollout) == ["", f"<think>Hm.</think> Mira.\n{notice}\n"]
    assert rollout.trace.counts == {"invalid_actions": 1}


def test_after_the_last_turn_it_may_answer_once_more_but_not_search():
    searching = "<search>more</search>"
    rollout = ScriptedRollout("search_r1", [searching] * 4 + ["<answer>Mira</answer>"])
    assert asyncio.run(search_r1("Who?", rollout)) == "Mira"
    assert len(rollout.searches) == 4


def test_a_text_without_an_answer_is_answered_from_or_has_none_as_in_the_authors_evaluation():
    searching = "<search>more</search>"
    rollout = ScriptedRollout("search_r1", [searching] * 5)
    assert asyncio.run(search_r1("Who?", rollout, answer_unfinished=False)) == ""
    assert len(rollout.searches) == 4
    assert rollout.trace.counts == {"unfinished": 1}

    rollout = ScriptedRollout("search_r1", [searching] * 5 + ["Mira"])
    assert asyncio.run(search_r1("Who?", rollout)) == "Mira"
    assert rollout.variables("answer")[0]["reasoning"].count("<information>") == 4
    assert rollout.roles == {"reason": "policy", "answer": "answer"}


def test_what_it_thought_before_its_last_search_is_kept_for_the_answer():
    last = "<think>It is Mira Tolen.</think><search>b</search>"
    rollout = ScriptedRollout("search_r1", ["<search>a</search>", f"{last} and more", "Mira Tolen"])
    assert asyncio.run(search_r1("Who?", rollout, max_turn=1)) == "Mira Tolen"
    assert rollout.searches == [("a", 3)]
    assert rollout.variables("answer")[0]["reasoning"].endswith(f"</information>\n\n{last.removesuffix('</search>')}")


def test_what_follows_the_first_action_of_a_turn_is_dropped():
    """Models that are not stopped invent what the search finds."""

    class Unstopped(ScriptedRollout):
        async def generate(self, stage, *, stop=(), **variables):
            return await super().generate(stage, **variables)

    invented = "<search>a</search> <information>It is Osk.</information> <answer>Osk</answer>"
    rollout = Unstopped("search_r1", [invented, "<answer>Mira</answer>"])
    assert asyncio.run(search_r1("Who?", rollout, top_k=1)) == "Mira"
    assert so_far(rollout)[1] == ('<search>a</search>\n\n<information>Doc 1(Title: "title a.0") a.0</information>\n\n')


@pytest.mark.parametrize(("given_question", "asked"), [("Who? ", "Who?"), ("Name the mayor", "Name the mayor?")])
def test_the_question_has_its_mark(given_question, asked):
    rollout = ScriptedRollout("search_r1", ["<answer>Mira</answer>"])
    asyncio.run(search_r1(given_question, rollout))
    assert rollout.variables("reason")[0]["question"] == asked


def test_passages_are_shown_as_the_checkpoints_know_them():
    passages = [Passage("1", "Osk", "A town."), Passage("2", "Bore", "A river.")]
    assert as_documents(passages) == 'Doc 1(Title: "Osk") A town.\nDoc 2(Title: "Bore") A river.'


def test_the_second_prompt_is_the_first_one_and_the_text_with_its_thoughts():
    def reply(request):
        return "<answer>Mira" if "prompt" in request else "<think>Where?</think>\n<search>the town"

    class Index:
        def search(self, query, top_k):
            return [Passage("1", "Osk", f"About {query}.")]

    async def run():
        client = Client(Endpoint(endpoint.base_url, endpoint.model))
        try:
            rollout = Rollout(Question("q", "Who?", ()), "search_r1", Resources({"policy": client}, Prompts(), Index()))
            return await search_r1("Who?", rollout)
        finally:
            await client.close()

    with fake_endpoint(reply) as endpoint:
        assert asyncio.run(run()) == "Mira"
    first, second = endpoint.requests
    assert [message["role"] for message in first["messages"]] == ["user"]
    assert second["prompt"] == prompt_text(first["messages"]) + (
        "<think>Where?</think>\n<search>the town</search>\n\n"
        '<information>Doc 1(Title: "Osk") About the town.</information>\n\n'
    )
    assert second["stop"] == first["stop"] and second["max_tokens"] == first["max_tokens"]
    assert first["max_tokens"] == 500 and first["stop"] == ["</search>", "</answer>"]


@settings(max_examples=25)
@given(st.data(), st.integers(1, 4))
def test_whatever_the_model_says_turns_and_searches_are_bounded(data, max_turn):
    tagged = st.text(max_size=3).map("<search>{}</search>".format)
    rollout = ScriptedRollout("search_r1", lambda stage, told: data.draw(SCRIPTED_TEXTS | tagged))
    asyncio.run(search_r1("Who?", rollout, max_turn=max_turn))
    assert rollout.stages.count("reason") <= max_turn + 1
    assert len(rollout.searches) <= max_turn
