"""The gain of a note to a reader: the rise of the gold answer's likelihood under a frozen model.

Nothing is generated: a server that scores prompts, such as vLLM, returns the log-probabilities of the gold answer's
tokens. Scores are in the response cache, as completions are, so that a run that was killed repeats none.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from tqdm import tqdm

from notewriter.evaluation.metrics.metric import Metric
from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.records import Passage, Question, Sampling
from notewriter.ground.text import first_words, words_in
from notewriter.methods.vanilla import ANSWER
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ModelArguments, Roles, served_models
from notewriter.rollouts.resources import Resources, open_resources
from notewriter.rollouts.rollout import Rollout

logger = logging.getLogger(__name__)

LIKELIHOOD = Metric(
    "note_likelihood",
    "Gold answer likelier with the note",
    "Log-likelihood of the gold answer per token (nats) under a frozen reader with the note, minus without it.",
    share=False,
)

YES_NO = Metric(
    "note_likelihood_yes_no",
    "Gold answer likelier with the note, yes or no",
    "The same of questions whose answer is yes or no.",
    share=False,
)

ANSWERS = 5
"""Gold answers of a question that are scored at most, the main one first."""

Gains = dict[str, float]
"""Question id -> `note_gain`."""


async def answer_likelihood(question: Question, note: str, reader: Resources) -> float:
    """The log-likelihood per token, in nats, of the likeliest gold answer to the question with a note.

    The reader (role `answer`) is asked as in vanilla RAG, with the note as the only passage, or with none if the note
    is empty.

    Raises:
        RequestRefused: the reader's endpoint refuses the prompt, or scores none.
    """
    rollout = Rollout(question, "likelihood", reader)
    passages = [Passage("note", "Note", note)] if note.strip() else []

    async def of(answer: str) -> float:
        scored = await rollout.score(
            ANSWER, answer, question=question.question, passages=passages, answer_style="short"
        )
        return fmean(logprob for _, logprob in scored.tokens or [])

    return max(await asyncio.gather(*map(of, question.answers[:ANSWERS])))


async def note_gain(question: Question, note: str, reader: Resources, words: int | None = None) -> float:
    """`answer_likelihood` with the first `words` words of a note (all if None), minus that without a note.

    An empty note gains 0. The likeliest gold answer may be another one without the note.
    """
    if words is not None and len(words_in(note)) > words:
        note = first_words(note, words)
    with_note, without = await asyncio.gather(
        answer_likelihood(question, note, reader), answer_likelihood(question, "", reader)
    )
    return with_note - without


def note_gains(
    notes: Mapping[str, Mapping[str, str]],
    questions: Sequence[Question],
    models: ModelArguments,
    folder: Path,
    words: int | None = None,
) -> dict[str, Gains]:
    """The gain of each writer's note on each question, under the model that plays the role `answer`.

    Args:
        notes: writer -> question id -> note.
        questions: with their gold answers; one without an answer is left out, and for all writers one for which the
            reader refuses the prompt of any.
        models: how the reader is reached or served.
        folder: for the log of its server.
        words: where notes are cut.

    Raises:
        UserError: the reader cannot be reached, or its endpoint does not score prompts.
    """
    wanted = [question for question in questions if question.answers]

    async def measure(roles: Roles) -> dict[str, Gains]:
        gains: dict[str, Gains] = {writer: {} for writer in notes}
        refusals: list[RequestRefused] = []
        places = asyncio.Semaphore(models.concurrency)
        async with open_resources(models, roles, None) as resources:
            # What is sampled is thrown away; one setting for all, so that the cache knows the scores.
            reader = replace(resources, sampling=Sampling(temperature=0.0, top_p=1.0), stage_sampling={})
            with tqdm(total=len(wanted), desc="likelihood", unit="question") as bar:

                async def read(question: Question) -> None:
                    written = {writer: by_id[question.id] for writer, by_id in notes.items() if question.id in by_id}
                    async with places:
                        try:
                            each = [note_gain(question, note, reader, words) for note in written.values()]
                            for writer, gain in zip(written, await asyncio.gather(*each), strict=True):
                                gains[writer][question.id] = gain
                        except RequestRefused as refusal:
                            refusals.append(refusal)
                    bar.update()

                await asyncio.gather(*map(read, wanted))
        if refusals and len(refusals) == len(wanted):
            raise UserError(
                f"the reader returns no log-probabilities of answers ({refusals[0]}); use a reader that vLLM serves"
            )
        if refusals:
            logger.warning("%d questions left out, whose prompts the reader refuses (%s)", len(refusals), refusals[0])
        return gains

    with served_models(models, folder) as roles:
        return run_async(measure(roles))
