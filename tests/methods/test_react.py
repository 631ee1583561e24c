"""ReAct and ReNAct: what each action does, its observation, and when the loop ends."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.artifacts.traces import Retrieval
from notewriter.evaluation.scoring import prediction_of
from notewriter.ground.records import Passage, Question
from notewriter.methods.react import react
from notewriter.methods.renact import renact
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout
from notewriter.testing import ScriptedRollout


class Library(ScriptedRollout):
    """An index of pages: a search finds the titles that share a word with it, best first."""

    def __init__(self, method: str, reply, pages: list[tuple[str, str]]) -> None:
        super().__init__(method, reply)
        self.pages = [Passage(f"p{number}", title, text) for number, (title, text) in enumerate(pages)]

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        self.searches.append((query, top_k))
        words = set(query.casefold().split())
        found = [page for page in self.pages if words & set(page.title.casefold().split())]
        return sorted(found, key=lambda page: -len(words & set(page.title.casefold().split())))[:top_k]


PAGES = [
    ("Old Bridge", "The bridge is old.\n\nMira built it.\nOsk paid for it."),
    ("Old Bridge", "It was painted by MIRA too."),
    ("Bridge", "A game of cards."),
]


def observations(rollout: ScriptedRollout) -> list[str]:
    """The observation of each action, from the chat of the last step."""
    turns = rollout.variables("step")[-1]["turns"]
    return [turn["content"].removeprefix("Observation: ") for turn in turns if turn["role"] == "user"]


def act(*actions: str, pages=PAGES, method=react, **options) -> tuple[str, list[str]]:
    """Run the actions and finish; returns the answer and the observations."""
    rollout = Library(
        method.__name__, [*(f"Thought: On.\nAction: {action}" for action in actions), "finish[Mira]"], pages
    )
    return asyncio.run(method("Who?", rollout, **options)), observations(rollout)


def test_a_search_shows_the_first_paragraph_of_each_passage():
    answer, (seen,) = act("search[old bridge]", top_k=3)
    assert seen == (
        "(Result 1) Old Bridge - The bridge is old.\n(Result 2) Old Bridge - It was painted by MIRA too.\n"
        "(Result 3) Bridge - A game of cards."
    )
    assert answer == "Mira"


def test_select_opens_the_page_with_that_title_and_no_other():
    _, (seen,) = act("select[old bridge]")
    assert seen.splitlines() == [
        "(Result 1) The bridge is old.",
        "(Result 2) Mira built it.",
        "(Result 3) Osk paid for it.",
        "(Result 4) It was painted by MIRA too.",
    ]
    _, (seen,) = act("select[Old Bridge]", page_size=2)
    assert seen.splitlines() == ["(Result 1) The bridge is old.", "(Result 2) Mira built it."]


def test_select_names_similar_titles_where_there_is_no_such_page():
    _, seen = act("select[The bridge]", "select[Ocean]")
    assert seen == ["There is no page with that title. Similar: Old Bridge; Bridge", "There is no such page."]


def test_a_whole_page_in_markdown_shows_its_paragraphs_and_looks_rows_of_its_tables_up():
    text = "| Old Bridge |  |\n| --- | --- |\n| Built | 1871 |\n\nThe bridge is old.\n\n## Name\n\nIt has none."
    page = [("Old Bridge", text), ("Osk", "| River | Osk |")]
    _, seen = act("search[old bridge osk]", "select[old bridge]", "lookup[built]", pages=page)
    assert seen == [
        "(Result 1) Old Bridge - The bridge is old.\n(Result 2) Osk - | River | Osk |",
        "(Result 1) The bridge is old.\n(Result 2) It has none.",
        "(Result 1) | Built | 1871 |",
    ]


def test_lookup_shows_the_paragraphs_with_a_string_on_the_page_that_is_open():
    _, seen = act(
        "lookup[mira]", "select[Old Bridge]", "lookup[mira]", "lookup[cards]", "select[Nowhere]", "lookup[mira]"
    )
    assert seen[0] == seen[-1] == "Select a page first."
    assert seen[2] == "(Result 1) Mira built it.\n(Result 2) It was painted by MIRA too."
    assert seen[3] == "Nothing was found."


def test_selecting_a_page_and_looking_a_string_up_are_no_searches():
    """NotesWriting counts search queries as steps (Table 5)."""
    actions = ["search[old bridge]", "select[Old Bridge]", "lookup[mira]", "select[Nowhere]", "finish[Mira]"]
    rollout = Recorded(Question("q", "Who?", ("Mira",)), "react", Resources({}, Prompts()))
    rollout.replies = [f"Action: {action}" for action in actions]
    asyncio.run(react("Who?", rollout))
    assert (len(rollout.trace.retrievals), rollout.trace.searches) == (3, 1)
    assert prediction_of(rollout.question, rollout.trace, "hotpotqa").retrievals == 1


class Recorded(Rollout):
    """A rollout that records its searches, of an index that is empty."""

    replies: list[str]

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        self.trace.steps.append(Retrieval(query, top_k, [], 0.0))
        return []

    async def generate(self, stage, **variables) -> str:
        return self.replies.pop(0)


def test_steps_go_back_as_turns_however_they_were_written():
    replies = [
        "**Thought 1:** On.\n**Action 1:** Search(old bridge)\nObservation: Made up.",
        "It is done.\nfinish['Mira']",
    ]
    rollout = Library("react", replies, PAGES)
    assert asyncio.run(react("Who?", rollout, top_k=1, answer_style="long")) == "Mira"
    first, second = rollout.variables("step")
    assert first == {"question": "Who?", "answer_style": "long", "turns": []}
    assert second["turns"] == [
        {"role": "assistant", "content": "Thought: On.\nAction: search[old bridge]"},
        {"role": "user", "content": "Observation: (Result 1) Old Bridge - The bridge is old."},
    ]
    assert (rollout.roles, rollout.trace.counts) == ({"step": "policy"}, {"steps": 2})
    assert rollout.trace.note is None


def test_a_reply_without_an_action_is_a_step_and_is_told_what_there_is():
    for method, listed in (
        (react, "search[...], select[...], lookup[...], finish[...]"),
        (renact, "search[...], finish[...]"),
    ):
        rollout = Library(method.__name__, ["I know.", "", "finish[Mira]"], PAGES)
        assert asyncio.run(method("Who?", rollout)) == "Mira"
        assert observations(rollout) == [f"No action could be read. End with one of: {listed}"] * 2
        assert rollout.variables("step")[-1]["turns"][0]["content"] == "I know."
        assert rollout.trace.counts == {"steps": 3, "invalid_actions": 2}


@pytest.mark.parametrize("method", [react, renact])
@pytest.mark.parametrize("max_step", [1, 4])
def test_where_the_steps_run_out_an_answer_is_written_from_all_of_them(method, max_step):
    rollout = Library(
        method.__name__,
        lambda stage, told: {"step": "Action: search[Tolen]", "answer": "Mira", "note": "NO#"}[stage],
        PAGES,
    )
    assert asyncio.run(method("Who?", rollout, max_step=max_step, answer_style="yes_no")) == "Mira"
    assert len(rollout.variables("step")) == max_step
    (told,) = rollout.variables("answer")
    assert len(told["history"]) == 2 * max_step and told["history"][0] == "Action: search[Tolen]"
    assert told["answer_style"] == "yes_no" and rollout.roles["answer"] == "answer"
    assert rollout.trace.counts == {"steps": max_step, "unfinished": 1}


def test_renact_searches_for_entity_and_question_and_takes_notes_for_the_question():
    rollout = Library(
        "renact",
        [
            "Action: search[Old bridge; Who built it?]",
            "YES#Mira.",
            "NO#",
            "Action: search[bridge]",
            "YES#Old.",
            "NO#",
            "finish[Mira]",
        ],
        PAGES,
    )
    assert asyncio.run(renact("Who?", rollout, top_k=2)) == "Mira"
    assert rollout.searches == [("Old bridge Who built it?", 2), ("bridge", 2)]
    assert [told["query"] for told in rollout.variables("note")] == [
        "Who built it?",
        "Who built it?",
        "bridge",
        "bridge",
    ]
    assert observations(rollout)[0] == "(Result 1) Old Bridge - Mira."


def test_the_note_is_there_from_the_beginning():
    rollout = Library("renact", ["finish[Mira]"], PAGES)
    asyncio.run(renact("Who?", rollout))
    assert rollout.trace.note == ""


ACTIONS = st.builds("Action: {}[{}]".format, st.sampled_from(["search", "select", "lookup", "finish"]), SCRIPTED_TEXTS)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([react, renact]), st.integers(1, 4), st.integers(1, 3))
def test_whatever_the_model_says_steps_and_searches_are_bounded(data, method, max_step, top_k):
    replies = (
        SCRIPTED_TEXTS
        | ACTIONS
        | st.sampled_from(["YES#a note", "Action: search[bridge; Who?]", "Action: select[Bridge]"])
    )
    rollout = Library(method.__name__, lambda stage, told: data.draw(replies), PAGES)
    answer = asyncio.run(method("Who?", rollout, max_step=max_step, top_k=top_k))
    steps = len(rollout.variables("step"))
    assert 1 <= steps <= max_step and len(rollout.searches) <= steps
    assert len(rollout.variables("note")) <= top_k * len(rollout.searches)
    assert rollout.trace.counts["steps"] == steps
    if "answer" in rollout.stages:
        assert steps == max_step and rollout.stages[-1] == "answer"
    else:
        assert answer


def test_the_case_of_kirk_watson():
    """The paper's case study (appendix, Table 11) in its decisions and counts, told in other words.

    Notes of three results name the mayor; those on his birthplace contradict each other, so it searches again and
    believes the second note; the population is rounded and the chain finishes after four searches.
    """
    question = (
        "The mayor of Austin in the nineties and again today: how many lived where he was born in 2000, in thousands?"
    )
    searches = [
        ("Austin mayors", "Which mayor of this century held the office in the nineties too?"),
        ("Kirk Watson", "Where was he born?"),
        ("Kirk Watson (politician)", "Which city of birth is confirmed?"),
        ("Oklahoma City", "What was its population in the census of 2000?"),
    ]
    found = [
        {
            "Mayor of Austin": "Kirk Watson, 1997 to 2001 and since 2023.",
            "Election of 2024": "Kirk Watson",
            "Austin": "Kirk Watson",
        },
        {"Kirk Watson": "Oklahoma City", "Austin": "Born in Oak Park, Illinois."},
        {"Kirk Watson": "Oklahoma City"},
        {"Oklahoma City": "506,132"},
    ]
    titles = ["Mayor of Austin", "Kirk Watson", "Election of 2024", "Austin", "Oklahoma City"]

    class Case(ScriptedRollout):
        async def retrieve(self, query, top_k):
            self.searches.append((query, top_k))
            return [Passage(title, title, "A long page.") for title in titles][:top_k]

    def reply(stage, told):
        if stage == "note":
            number = [query for _, query in searches].index(told["query"])
            note = found[number].get(told["passages"][0].title)
            return f"YES#{note}" if note else "NO#No relevant information."
        assert stage == "step"
        seen = [turn["content"] for turn in told["turns"] if turn["role"] == "user"]
        if not seen:
            return action(0, "First, who is the mayor?")
        if "506,132" in seen[-1]:
            return "Thought: Rounded to thousands it is 506,000.\nAction: finish[506,000]"
        if "Oklahoma City" in seen[-1] and "Oak Park" in seen[-1]:
            return action(2, "The notes contradict each other, I search again.")
        return action(3, "Now the population.") if "Oklahoma City" in seen[-1] else action(1, "It is Kirk Watson.")

    def action(number, thought):
        return f"Thought: {thought}\nAction: search[{'; '.join(searches[number])}]"

    case = Case("renact", reply)
    assert asyncio.run(renact(question, case)) == "506,000"
    assert case.searches == [(" ".join(search), 5) for search in searches]
    assert len(case.variables("note")) == 20 and case.trace.counts == {"steps": 5}
    assert observations(case) == [
        "(Result 1) Mayor of Austin - Kirk Watson, 1997 to 2001 and since 2023.\n"
        "(Result 2) Election of 2024 - Kirk Watson\n(Result 3) Austin - Kirk Watson",
        "(Result 1) Kirk Watson - Oklahoma City\n(Result 2) Austin - Born in Oak Park, Illinois.",
        "(Result 1) Kirk Watson - Oklahoma City",
        "(Result 1) Oklahoma City - 506,132",
    ]
    assert case.trace.note.endswith("Oklahoma City - 506,132") and case.trace.note.count("\n") == 6
