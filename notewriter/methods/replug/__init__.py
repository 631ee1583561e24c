"""REPLUG: every passage is prepended separately, and the answers' probabilities are averaged over the passages."""

import math
from typing import TYPE_CHECKING, Any

from notewriter.ground.lazy import Lazy
from notewriter.ground.records import Completion
from notewriter.models.thoughts import after_thinking
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

if TYPE_CHECKING:
    import numpy as np
else:
    np = Lazy("numpy")

ANSWER = Stage("replug/answer", "answer", "answer", scored=True)


async def replug(question: str, rollout: Rollout, *, top_k: int = 10, answer_style: str = "short") -> str:
    """Answer with the candidate of the highest probability averaged over passages (Shi et al. 2023, section 3.2).

    p(y | x) = sum over passages d of w(d) p(y | d, x), exactly, for whole answers y including their end. It differs
    from the paper in two points. Candidates y are the answers written from each passage alone. The paper decodes token
    by token from the averaged distribution, which needs every token's probability; servers return the 20 likeliest. And
    w(d) is uniform, where the paper has a softmax of cosine similarities: a chain of retrievers has no scores on one
    scale. Needs vLLM, which scores prompts, and a model that does not think before it answers. An end that is not among
    the 20 most likely tokens counts as impossible (`impossible_ends`). Calls: top-k drafts, then top-k scores per
    distinct candidate.

    Args:
        rollout: the rollout to run in; `answer` writes and scores.
        top_k: passages (the paper: up to 10).
    """
    passages = await rollout.retrieve(question, top_k)
    given: list[dict[str, Any]] = [
        {"question": question, "passages": [passage], "answer_style": answer_style} for passage in passages
    ]
    drafts = [await rollout.generate_scored(ANSWER, **variables) for variables in given]
    candidates = list(dict.fromkeys(filter(None, (after_thinking(draft.text).strip() for draft in drafts))))
    if len(candidates) < 2:
        return candidates[0] if candidates else ""
    end = next(filter(None, map(_end, drafts)), "")
    logprobs: dict[str, float] = {}
    for candidate in candidates:
        of_passages = []
        for draft, variables in zip(drafts, given, strict=True):
            scored = await rollout.score(
                ANSWER, candidate, prompt_tokens=draft.prompt_tokens, alternatives=(end,) if end else (), **variables
            )
            logprob = sum(logprob for _, logprob in scored.tokens or [])
            if end:
                ending = (scored.alternatives or [{}])[0].get(end, -math.inf)
                if ending == -math.inf:
                    rollout.count("impossible_ends")
                logprob += ending
            of_passages.append(logprob)
        # In logarithms, since the probability of a long answer is below the smallest number.
        logprobs[candidate] = float(np.logaddexp.reduce(of_passages))
    return max(candidates, key=logprobs.__getitem__)


def _end(draft: Completion) -> str:
    """The token that ended a draft; empty if it was cut, or if the server does not return it."""
    last = draft.tokens[-1][0] if draft.tokens and draft.finish_reason == "stop" else ""
    return "" if f" {draft.text}".endswith(last) else last


METHOD = Method(replug, (ANSWER,))
