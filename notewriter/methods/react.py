"""ReAct: thoughts and actions in turn, each answered by an observation; and ReNAct, where observations are notes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from notewriter.actions import Action, parse_call
from notewriter.methods.notes_writing import as_observation, take_notes
from notewriter.records import Message, Passage
from notewriter.rollout import Rollout

Tool = Callable[[str], Awaitable[str]]
"""What an action does: its argument in, an observation out."""


async def react(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 5,
    max_step: int = 15,
    page_size: int = 10,
    notes: bool = False,
    answer_style: str = "short",
) -> str:
    """Reason and act with search, select and lookup (ReAct as NotesWriting runs it, section 4.4).

    The paper acts on Wikipedia; on an index of passages, a page is what the index holds under one title, whether
    that is a whole page in one passage or a page in many:
    - `search[query]`: the first paragraph of each of the `top_k` passages that fit the query best.
    - `select[title]`: the first `page_size` paragraphs of the page of that title, which is found by retrieving
      `page_size` passages for the title and keeping those that bear it, in the order of the index's ranking.
    - `lookup[string]`: the paragraphs of the selected page with that string, in whatever case.
    - `finish[answer]`: the end.

    Args:
        question: the question to answer.
        rollout: where it runs; `policy` reasons, `answer` answers where the steps ran out.
        top_k: passages a search (section 4.4: 5).
        max_step: steps at the most, T. The paper does not tell its T; its longest chains took 10.4 searches on
            average (Table 2).
        page_size: passages of a page (section 4.4: 10).
        notes: True is ReNAct, see `renact`.
        answer_style: `short`, `long` or `yes_no`.
    """
    if notes:
        return await renact(question, rollout, top_k=top_k, max_step=max_step, answer_style=answer_style)
    page: list[str] = []

    async def search(query: str) -> str:
        passages = await rollout.retrieve(query, top_k)
        firsts = [replace(passage, text=first) for passage in passages for first in _paragraphs(passage)[:1]]
        return as_observation(firsts)

    async def select(title: str) -> str:
        passages = await rollout.retrieve(title, page_size)
        page[:] = [each for passage in passages if _same(passage.title, title) for each in _paragraphs(passage)]
        if not page:
            titles = "; ".join(dict.fromkeys(passage.title for passage in passages))
            return f"There is no page with that title. Similar: {titles}" if titles else "There is no such page."
        return _listed(page[:page_size])

    async def lookup(string: str) -> str:
        if not page:
            return "Select a page first."
        return _listed([paragraph for paragraph in page if string.casefold() in paragraph.casefold()])

    tools = {"search": search, "select": select, "lookup": lookup}
    return await _reason_and_act(question, rollout, "react", tools, max_step, answer_style)


async def renact(
    question: str, rollout: Rollout, *, top_k: int = 5, max_step: int = 15, answer_style: str = "short"
) -> str:
    """Reason and act, and observe notes on what was found, not the documents (NotesWriting's ReNAct, section 3.2).

    `search[entity; question]` retrieves for both and has notes taken for the question; `finish[answer]` ends.
    (The paper searches Wikipedia's titles for the entity; an index of passages finds more with the question.)

    Args:
        question: the question to answer.
        rollout: where it runs; `policy` reasons, `notes` writes the notes, `answer` answers where the steps ran out.
        top_k: documents a search (section 4.3: 5).
        max_step: steps at the most, T; see `react`.
        answer_style: `short`, `long` or `yes_no`.
    """
    notes: list[Passage] = []
    rollout.keep_note("")

    async def search(argument: str) -> str:
        entity, _, query = (part.strip() for part in argument.partition(";"))
        passages = await rollout.retrieve(f"{entity} {query}".strip(), top_k)
        return as_observation(await take_notes(rollout, "renact/note", query or entity, passages, notes))

    return await _reason_and_act(question, rollout, "renact", {"search": search}, max_step, answer_style)


async def _reason_and_act(
    question: str, rollout: Rollout, method: str, tools: Mapping[str, Tool], max_step: int, answer_style: str
) -> str:
    """The loop of thought, action and observation; where the steps run out, an answer from all of it.

    Every reply is a step, also one without an action. Counted are `steps`, `invalid_actions` and `unfinished`.
    """
    turns: list[Message] = []
    names = (*tools, "finish")
    for _ in range(max_step):
        reply = await rollout.generate(
            f"{method}/step", stop=("\nObservation",), turns=turns, question=question, answer_style=answer_style
        )
        rollout.count("steps")
        action = parse_call(reply, names)
        if action is None:
            rollout.count("invalid_actions")
            observation = f"No action could be read. End with one of: {', '.join(f'{name}[...]' for name in names)}"
        elif action.name == "finish":
            return action.argument
        else:
            observation = await tools[action.name](action.argument)
        # Chat templates that want user and assistant in turn also want the turn of a model that said nothing.
        turns.append({"role": "assistant", "content": _as_step(action) if action else reply or "(nothing)"})
        turns.append({"role": "user", "content": f"Observation: {observation}"})
    rollout.count("unfinished")
    history = [turn["content"] for turn in turns]
    return await rollout.generate(
        f"{method}/answer", role="answer", question=question, history=history, answer_style=answer_style
    )


def _as_step(action: Action) -> str:
    """A step as the chat has it: however the model wrote it, it is told back like this."""
    thought = f"Thought: {action.thought}\n" if action.thought else ""
    return f"{thought}Action: {action.name}[{action.argument}]"


def _paragraphs(passage: Passage) -> list[str]:
    return [line.strip() for line in passage.text.splitlines() if line.strip()]


def _listed(texts: list[str]) -> str:
    return "\n".join(f"(Result {number}) {text}" for number, text in enumerate(texts, start=1)) or "Nothing was found."


def _same(title: str, other: str) -> bool:
    return " ".join(title.casefold().split()) == " ".join(other.casefold().split())
