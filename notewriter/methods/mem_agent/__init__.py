"""MemAgent: a long text is read in chunks, and a memory of fixed length is rewritten after each."""

import asyncio
import functools
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from notewriter.corpora.splitting import load_tokenizer
from notewriter.ground.records import Passage
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rehearsal import TOKENS_A_WORD
from notewriter.rollouts.rollout import Rollout

UPDATE_MEMORY = Stage("mem_agent/update_memory", "notes", "updated note", max_tokens=1024)
ANSWER = Stage("mem_agent/answer", "answer", "answer", calls=1, max_tokens=1024)

_load_tokenizer = functools.cache(load_tokenizer)

_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_THEREFORE = re.compile(r"\btherefore, the answer is\b:?", re.IGNORECASE)


async def mem_agent(
    question: str,
    rollout: Rollout,
    *,
    chunk_tokens: int = 5000,
    tokenizer: str = "",
    top_k: int = 10_000,
    answer_style: str = "short",
) -> str:
    """Read the documents chunk by chunk into a memory, then answer from the memory alone (MemAgent, Yu et al. 2025).

    The memory is overwritten: each call gets question, memory and chunk, and writes the next memory; the
    last call gets question and memory. A chunk ends after exactly so many tokens, even within a document. The text is
    what one retrieval returns, in its order: with `documents` as the retriever, the question's documents in the order
    of their file; with an index, a ranking. Counts `chunks`.

    The authors' evaluation cuts texts beyond a limit in the middle; here all of it is read. Both forms of the answer
    in their prompts are understood, a box and "Therefore, the answer is".

    Args:
        rollout: the rollout to run in; `notes` writes the memory, `answer` answers.
        chunk_tokens: tokens per chunk (the paper: 5,000); a memory has at most 1,024.
        tokenizer: the model's folder or hub id, to count tokens; without it, 1.3 tokens per word are assumed.
        top_k: maximum number of documents.
    """
    memory = ""
    rollout.keep_note(memory)
    text = as_text(await rollout.retrieve(question, top_k))
    # A tokenizer takes a second for a text of half a million tokens.
    read = await asyncio.to_thread(chunks, text, chunk_tokens, tokenizer)
    for number, chunk in enumerate(read, start=1):
        rollout.count("chunks")
        section = Passage(f"chunk {number}", "", chunk)
        memory = await rollout.generate(UPDATE_MEMORY, question=question, note=memory, passages=[section])
        rollout.keep_note(memory)
    return _final(await rollout.generate(ANSWER, question=question, note=memory, answer_style=answer_style))


def as_text(documents: Sequence[Passage]) -> str:
    """One text of all documents, numbered, as in the authors' data."""
    return "\n\n".join(f"Document {n}:\n{each.title}\n{each.text}" for n, each in enumerate(documents, start=1))


def chunks(text: str, size: int, tokenizer: str = "") -> Iterator[str]:
    """The text cut after every `size` tokens, or after as many words as are assumed to have so many."""
    if tokenizer:
        offsets = _load_tokenizer(tokenizer).encode(text, add_special_tokens=False).offsets
        starts = [start for start, _ in offsets[::size]]
    else:
        words = max(1, round(size / TOKENS_A_WORD))
        starts = [match.start() for match in re.finditer(r"\S+", text)][::words]
    return (text[start:end].strip() for start, end in pairwise([*starts, len(text)]))


def _final(reply: str) -> str:
    """The answer in the last box or after "Therefore, the answer is"; without either, the reply is the answer."""
    boxes: list[str] = _BOXED.findall(reply)
    return (boxes or _THEREFORE.split(reply))[-1].strip()


METHOD = Method(mem_agent, (UPDATE_MEMORY, ANSWER))
