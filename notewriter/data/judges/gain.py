"""The judge `gain`: notes are scored by a frozen answerer's gain over plain passages."""

import asyncio
import statistics
from dataclasses import replace

from notewriter.data.judges.case import Case, Verdict, by_mean, judge
from notewriter.data.judges.metric import answer_score
from notewriter.ground.records import Passage
from notewriter.methods.vanilla import ANSWER
from notewriter.models.thoughts import after_thinking


@judge("note", "updated note", roles=("answer",))
async def gain(case: Case) -> Verdict:
    """Rank notes by Gain Beyond RAG: the answerer's score with the note minus its score with plain passages.

    This is the reward of s3 (Jiang et al. 2025, arXiv 2505.14146), with the task's own metric as the score. The
    answerer is the model of the role `answer`; it sees either the note or the method's `top_k` passages for the
    question, in the prompt of vanilla RAG. As s3 trains only on questions that plain RAG does not answer, there is no
    pair if no note beats the passages.

    The score with the passages is the same at every prompt of a question: the response cache answers these calls after
    the first time. It cancels out in differences, so its noise is left out. The answers become the verdict's `replies`,
    those from the passages first.
    """
    passages = await case.search(case.question.question, case.options["top_k"])
    contexts = [passages, *([Passage("note", "Note", candidate)] for candidate in case.candidates)]
    answers = await asyncio.gather(
        *(
            case.ask(
                ANSWER,
                sample=number,
                question=case.question.question,
                passages=context,
                answer_style=case.options.get("answer_style", "short"),
            )
            for context in contexts
            for number in range(case.rules.continuations)
        )
    )
    scores = [answer_score(case, after_thinking(answer).strip()) for answer in answers]
    baseline, *of_notes = (
        scores[start : start + case.rules.continuations] for start in range(0, len(scores), case.rules.continuations)
    )
    plain = statistics.fmean(baseline)
    return replace(by_mean(case, [[score - plain for score in of_note] for of_note in of_notes]), replies=list(answers))
