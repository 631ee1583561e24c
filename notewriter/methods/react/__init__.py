"""ReAct: thoughts alternate with actions, each followed by an observation."""

from dataclasses import replace

from notewriter.artifacts.traces import OPENED_PAGES
from notewriter.ground.records import Passage
from notewriter.ground.text import paragraphs
from notewriter.methods.acting import REHEARSAL, reason_and_act
from notewriter.methods.notes_writing import as_observation
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

STEP = Stage("react/step", rehearsal=REHEARSAL)
ANSWER = Stage("react/answer", "answer", "answer")


async def react(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 5,
    max_step: int = 15,
    page_size: int = 10,
    answer_style: str = "short",
) -> str:
    """Reason and act with search, select and lookup (ReAct as NotesWriting runs it, section 4.4).

    The paper acts on Wikipedia. On an index, a page consists of all passages with the same title, and a paragraph is a
    line that is neither a heading nor a row of a table:
    - `search[query]`: the first paragraph of each of the `top_k` best passages.
    - `select[title]`: the first `page_size` paragraphs of the page with that title, found by retrieving `page_size`
      passages for the title and keeping those that have it, in the order of the ranking.
    - `lookup[string]`: the lines of the selected page that contain the string, rows of tables too, ignoring case.
    - `finish[answer]`: the end.

    Only `search` is a search in the number of steps (Table 5): `select` counts `opened_pages`, which are subtracted.

    Args:
        rollout: the rollout to run in; `policy` reasons, `answer` answers if the steps run out.
        top_k: passages per search (section 4.4: 5).
        max_step: T, maximum number of steps. The paper does not state its T; its longest chains took 10.4 searches
            on average (Table 2).
        page_size: passages per page (section 4.4: 10).
    """
    page: list[str] = []

    async def search(query: str) -> str:
        passages = await rollout.retrieve(query, top_k)
        firsts = [replace(passage, text=first) for passage in passages for first in paragraphs(_lines(passage))[:1]]
        return as_observation(firsts)

    async def select(title: str) -> str:
        passages = await rollout.retrieve(title, page_size)
        rollout.count(OPENED_PAGES)
        page[:] = [line for passage in passages if _same(passage.title, title) for line in _lines(passage)]
        if not page:
            titles = "; ".join(dict.fromkeys(passage.title for passage in passages))
            return f"There is no page with that title. Similar: {titles}" if titles else "There is no such page."
        return _listed(paragraphs(page)[:page_size])

    async def lookup(string: str) -> str:
        if not page:
            return "Select a page first."
        return _listed([line for line in page if string.casefold() in line.casefold()])

    tools = {"search": search, "select": select, "lookup": lookup}
    return await reason_and_act(question, rollout, (STEP, ANSWER), tools, max_step, answer_style)


def _lines(passage: Passage) -> list[str]:
    return [line.strip() for line in passage.text.splitlines() if line.strip()]


def _listed(texts: list[str]) -> str:
    return "\n".join(f"(Result {number}) {text}" for number, text in enumerate(texts, start=1)) or "Nothing was found."


def _same(title: str, other: str) -> bool:
    return " ".join(title.casefold().split()) == " ".join(other.casefold().split())


METHOD = Method(react, (STEP, ANSWER))
