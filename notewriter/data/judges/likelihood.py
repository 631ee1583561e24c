"""The judge `likelihood`: a frozen reader scores notes by how much likelier they make the gold answer."""

import asyncio

from notewriter.data.judges.case import Case, Verdict, by_score, judge
from notewriter.evaluation.likelihood import note_gain
from notewriter.ground.text import is_yes_no


@judge("note", "updated note", roles=("answer",))
async def likelihood(case: Case) -> Verdict:
    """Rank notes by how much likelier the gold answer is with their first `note_words` words than without a note.

    The reader is the model of the role `answer`; nothing is generated, and its server scores prompts (vLLM). As in R2U
    and MemPO the score is the gain in log-likelihood, here per token of the answer, in nats (`note_gain`). A note that
    makes the answer no likelier is not chosen. A yes or no, which a reader finds likely whatever it reads, gives no
    pair.
    """
    if not case.question.answers or is_yes_no(case.question.answers):
        return Verdict(alike=True, reason="the gold answer is a yes or no, or not known")
    gains = (note_gain(case.question, note, case.reader, case.rules.note_words) for note in case.candidates)
    return by_score(case, await asyncio.gather(*gains))
