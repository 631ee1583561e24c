"""Infogent: a navigator searches and opens pages, an extractor reads them, an aggregator keeps and directs."""

import re

from notewriter.ground.records import Message, Passage
from notewriter.ground.text import first_words
from notewriter.rollouts.actions import parse_call
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import is_nothing, object_schema, parse_json_object
from notewriter.rollouts.rollout import Rollout

NAVIGATE = Stage("infogent/navigate", "query", rehearsal="Thought:{filling}\nAction: search[{query}]")
SELECT = Stage("infogent/select", "query", rehearsal="Thought:{filling}\nAction: extract[1]")
EXTRACT = Stage("infogent/extract", "notes", "note")
AGGREGATE = Stage(
    "infogent/aggregate",
    "judge",
    rehearsal='{"thoughts": "{filling}", "actions": ["ADD(P1)"], "feedback": "Find {query}"}',
)
ANSWER = Stage("infogent/answer", "answer", "answer", calls=1)

SNIPPET_WORDS = 30
"""Words of a page that a search shows, about as many as a web search does."""

MAX_PARAGRAPHS = 2
"""Paragraphs that the extractor may take from a page."""

SCHEMA = object_schema(
    {
        "thoughts": {"type": "string"},
        "actions": {"type": "array", "items": {"type": "string"}},
        "feedback": {"type": "string"},
    }
)

# `1`, `(1)`, and with its title, as a search lists it.
_NUMBER = re.compile(r"\(?(\d{1,6})(?:\)|:|\Z)", re.ASCII)
_ADD = re.compile(r"ADD\(P(\d{1,3})\)", re.IGNORECASE)
_REPLACE = re.compile(r"REPLACE\(E(\d{1,3}),\s*P(\d{1,3})\)", re.IGNORECASE)


async def infogent(
    question: str, rollout: Rollout, *, top_k: int = 3, max_step: int = 10, answer_style: str = "short"
) -> str:
    """Navigate, extract and aggregate until the navigator finishes (Reddy et al. 2024, direct API access).

    The navigator searches, opens one of the pages found, or finishes; it never sees a page or a kept paragraph, only
    the aggregator's feedback. The extractor takes up to two paragraphs from an opened page, by the navigator's thought.
    The aggregator adds them to what it keeps, lets them replace some of it, or drops them, and says what to look for
    next. The answer comes from the kept paragraphs alone. As NotesWriting runs it (appendix A.1), the web search is a
    search of the index; a page is all that its searches found under a title. The authors' navigator is an AutoGPT agent
    with a vector memory of its steps, ours a chat with all of them.

    Counts `steps`, `opened`, `invalid_actions` (of both agents), `unreadable_aggregations` and `unfinished`.

    Args:
        rollout: the rollout to run in; `query` navigates, `notes` extracts, `judge` aggregates, `answer` answers.
        top_k: pages that a search shows (the authors' code: 3).
        max_step: iterations that the aggregator is told of; the navigator takes up to twice as many steps (the authors'
            code: 10).
    """
    kept: list[str] = []
    feedback: list[str] = []
    found: dict[str, list[Passage]] = {}
    shown: list[str] = []
    turns: list[Message] = []
    thought = ""
    rollout.keep_note("")

    async def search(query: str) -> str:
        passages = await rollout.retrieve(query, top_k)
        for passage in passages:
            page = found.setdefault(passage.title, [])
            page += [passage] if passage not in page else []
        shown[:] = dict.fromkeys(passage.title for passage in passages)
        return _listed(shown, found)

    async def extract(name: str) -> str:
        title = _page(name, shown, found)
        if title is None:
            rollout.count("invalid_actions")
            return "No search has found this page."
        rollout.count("opened")
        reply = await rollout.generate(EXTRACT, question=question, passages=found[title], thought=thought)
        paragraphs = _paragraphs(reply)
        if not paragraphs:
            return "The page has nothing of use. Go on with another one."
        return f"{await aggregate(paragraphs)} Paragraphs kept so far: {len(kept)}"

    async def aggregate(paragraphs: list[str]) -> str:
        reply = await rollout.generate(
            AGGREGATE,
            json_schema=SCHEMA,
            question=question,
            kept=kept,
            paragraphs=paragraphs,
            thought=thought,
            feedback=feedback,
            max_step=max_step,
        )
        aggregation = parse_json_object(reply)
        if aggregation is None:
            rollout.count("unreadable_aggregations")
            return "The page could not be used. Go on with another one."
        _update(kept, aggregation.get("actions"), paragraphs, rollout)
        rollout.keep_note("\n\n".join(kept))
        feedback.append(str(aggregation.get("feedback") or "Go on."))
        return feedback[-1]

    stage = NAVIGATE
    for _ in range(2 * max_step):
        reply = await rollout.generate(stage, stop=("\nObservation",), turns=turns, question=question)
        rollout.count("steps")
        action = parse_call(reply, ("search", "extract", "finish"))
        if action and action.name == "finish":
            break
        stage = NAVIGATE
        if action is None:
            rollout.count("invalid_actions")
            observation = "No action could be read. End with one of: search[...], extract[...], finish[done]"
        elif action.name == "search":
            thought = action.thought or action.argument
            observation = await search(action.argument)
            stage = SELECT
        else:
            observation = await extract(action.argument)
        turns.append({"role": "assistant", "content": reply or "(nothing)"})
        turns.append({"role": "user", "content": f"Observation: {observation}"})
    else:
        rollout.count("unfinished")
    return await rollout.generate(ANSWER, question=question, kept=kept, answer_style=answer_style)


def _listed(titles: list[str], found: dict[str, list[Passage]]) -> str:
    snippets = [first_words(found[title][0].text, SNIPPET_WORDS) for title in titles]
    pages = [
        f"({number}) {title}: {text}" for number, (title, text) in enumerate(zip(titles, snippets, strict=True), 1)
    ]
    return "\n".join(pages) or "Nothing was found."


def _page(argument: str, shown: list[str], found: dict[str, list[Passage]]) -> str | None:
    """The title of a page that was found, named by its number in the last search, its title, or both."""
    number = _NUMBER.match(argument)
    if number and 1 <= int(number[1]) <= len(shown):
        return shown[int(number[1]) - 1]
    return next((title for title in found if title.casefold() == argument.casefold()), None)


def _paragraphs(reply: str) -> list[str]:
    """The extractor's paragraphs; none if it replied "nothing"."""
    if is_nothing(reply):
        return []
    return [text for text in (part.strip() for part in re.split(r"\n\s*\n", reply)) if text][:MAX_PARAGRAPHS]


def _update(kept: list[str], actions: object, paragraphs: list[str], rollout: Rollout) -> None:
    """Carry out the aggregator's actions on the kept paragraphs; those that name none are counted and left out."""
    for action in actions if isinstance(actions, list) else []:
        if (add := _ADD.fullmatch(str(action).strip())) and 1 <= int(add[1]) <= len(paragraphs):
            kept.append(paragraphs[int(add[1]) - 1])
        elif (
            (replace := _REPLACE.fullmatch(str(action).strip()))
            and 1 <= int(replace[1]) <= len(kept)
            and 1 <= int(replace[2]) <= len(paragraphs)
        ):
            kept[int(replace[1]) - 1] = paragraphs[int(replace[2]) - 1]
        else:
            rollout.count("invalid_actions")


METHOD = Method(infogent, (NAVIGATE, SELECT, EXTRACT, AGGREGATE, ANSWER))
