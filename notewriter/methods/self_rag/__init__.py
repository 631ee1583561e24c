"""Self-RAG: a checkpoint that decides by reflection tokens when to retrieve and which passage served it best."""

import math
import re
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from notewriter.ground.records import Completion, Message, Passage
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

DECIDE = Stage("self_rag/decide", rehearsal="[Retrieval]", calls=1, raw=True, scored=True)
SEGMENT = Stage(
    "self_rag/segment", rehearsal="[Relevant]{filling}[Fully supported][Utility:5][Retrieval]", raw=True, scored=True
)

RETRIEVAL, NO_RETRIEVAL = "[Retrieval]", "[No Retrieval]"
RELEVANCE = {"[Relevant]": 1.0, "[Irrelevant]": 0.0}
SUPPORT = {"[Fully supported]": 1.0, "[Partially supported]": 0.5, "[No support / Contradictory]": 0.0}
USEFULNESS = {"[Utility:5]": 1.0, "[Utility:4]": 0.5, "[Utility:3]": 0.0, "[Utility:2]": -0.5, "[Utility:1]": -1.0}
REFLECTION = (RETRIEVAL, NO_RETRIEVAL, *RELEVANCE, *SUPPORT, *USEFULNESS)

_OTHER_MARKS = ("[Continue to Use Evidence]", "<paragraph>", "</paragraph>", "<s>", "</s>")
_MARKS = re.compile("|".join(map(re.escape, (*REFLECTION, *_OTHER_MARKS))))


@dataclass(frozen=True, slots=True)
class _Path:
    """A beam: its segments, the product of their scores, and whether the last one asked for retrieval."""

    segments: tuple[str, ...] = ()
    score: float = 1.0
    goes_on: bool = True


async def self_rag(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 5,
    threshold: Annotated[float, Interval(le=1)] = 0.2,
    beam_width: int = 2,
    max_step: int = 1,
    max_tokens: int = 100,
    relevance_weight: float = 1.0,
    support_weight: float = 1.0,
    usefulness_weight: float = 0.5,
    sequence_score: bool = True,
    retrieve_again: bool = False,
    short_instruction: bool = False,
    answer_style: str = "short",
) -> str:
    """Retrieve on demand, write a segment per passage, keep the best by reflection tokens (Asai et al. 2023, Alg. 1).

    For the released checkpoints (selfrag/selfrag_llama2_7b and _13b), in their own prompt format. If [Retrieval] is
    likely enough, a segment is written after each passage and scored (section 3.3): its mean token probability plus the
    weighted critique. The critique has P([Relevant]), P(fully) + P(partially) / 2 and the expected usefulness in -1 to
    1, each normalised over its group at the group's first token. A group that does not occur scores 0. A segment ends
    where the model asks for retrieval again. Serve the model with vLLM, and sample with `temperature: 0` as the authors
    do.

    Where the authors' code differs from the paper, this is the paper: the code's short-form script compares
    log-probabilities with the threshold, and its long-form script leaves usefulness out. As in the code, a path's score
    is the product of its segments' and all segments read the question's passages. Beyond both: probabilities of tokens
    outside the 20 most likely count as 0. Counts `steps`, `retrieved` and `unreadable_reflections` (no retrieval token
    is likely, or a segment without a likely relevance token).

    Args:
        rollout: the rollout to run in; `policy` is the Self-RAG checkpoint.
        top_k: passages per retrieval (the paper: 5; 10 for PopQA and TriviaQA).
        threshold: retrieve if P([Retrieval]) / (P([Retrieval]) + P([No Retrieval])) exceeds it (the paper: 0.2;
            ASQA: 0); below 0 always retrieves, 1 never.
        beam_width: paths kept after each segment (the paper: 2).
        max_step: maximum number of segments: 1 is the authors' short-form inference; their long-form script runs with
            `--max_depth 7`, which makes 6.
        max_tokens: maximum tokens of a segment (the authors' code: 100; long form: 300).
        relevance_weight: w of IsRel (the paper: 1.0).
        support_weight: w of IsSup (the paper: 1.0).
        usefulness_weight: w of IsUse (the paper: 0.5).
        sequence_score: add the segment's mean token probability (equation 3; the authors' `--use_seqscore`).
        retrieve_again: search with the question and the last segment for every further segment (Algorithm 1) instead of
            reading the question's passages.
        short_instruction: ask for a short answer in the style `short` too (FlashRAG), which by default adds no
            instruction, as for PopQA and TriviaQA in the paper.
    """
    weights = (relevance_weight, support_weight, usefulness_weight)
    instruction = answer_style if short_instruction or answer_style != "short" else ""

    async def say(stage: Stage, said: str, limit: int = max_tokens) -> Completion:
        # The format ends its header with a line break, which rendering strips.
        turns: list[Message] = [{"role": "assistant", "content": f"\n{said}"}]
        return await rollout.generate_scored(
            stage, max_tokens=limit, alternatives=REFLECTION, turns=turns, question=question, answer_style=instruction
        )

    decision = await say(DECIDE, "", 1)
    if not _retrieves(decision, threshold, rollout):
        reply = await say(SEGMENT, NO_RETRIEVAL)
        return _plain(reply.text.partition("\n\n")[0])

    async def grow(path: _Path, passages: list[Passage]) -> list[_Path]:
        grown = []
        for passage in passages:
            reply = await say(SEGMENT, f"{''.join(path.segments)}{RETRIEVAL}{_paragraph(passage)}")
            if not _group(reply, RELEVANCE):
                rollout.count("unreadable_reflections")
            score = _critique(reply, weights) + (_mean_probability(reply) if sequence_score else 0)
            segment, goes_on = _segment(reply, threshold)
            grown.append(_Path((*path.segments, segment), path.score * score, goes_on))
        return grown

    passages = await rollout.retrieve(question, top_k)
    paths = [_Path()]
    for step in range(max_step):
        ended = [path for path in paths if not path.goes_on]
        if len(ended) == len(paths):
            break
        rollout.count("steps")
        grown = ended
        for path in paths:
            if path.goes_on:
                if retrieve_again and step:
                    passages = await rollout.retrieve(f"{question} {_plain(path.segments[-1])}", top_k)
                grown += await grow(path, passages)
        paths = sorted(grown, key=lambda path: -path.score)[:beam_width]
    best = next((path for path in paths if _plain(" ".join(path.segments))), _Path())
    return " ".join(filter(None, map(_plain, dict.fromkeys(best.segments))))


def _retrieves(decision: Completion, threshold: float, rollout: Rollout) -> bool:
    """Whether the model wants passages: by the share of [Retrieval], or by its text if neither token is likely."""
    share = _share_of_retrieval((decision.alternatives or [{}])[0])
    if share is None:
        rollout.count("unreadable_reflections")
    wants = RETRIEVAL in decision.text if share is None else share > threshold
    if wants or threshold < 0:
        rollout.count("retrieved")
    return wants or threshold < 0


def _share_of_retrieval(likely: dict[str, float]) -> float | None:
    yes, no = (math.exp(likely[token]) if token in likely else 0.0 for token in (RETRIEVAL, NO_RETRIEVAL))
    return yes / (yes + no) if yes + no else None


def _paragraph(passage: Passage) -> str:
    return f"<paragraph>{passage.title}\n{passage.text}</paragraph>"


def _segment(reply: Completion, threshold: float) -> tuple[str, bool]:
    """The text up to where the model asks for retrieval, and whether it does.

    A [No Retrieval] counts as [Retrieval] if the latter is likely enough at its position.
    """
    positions = [place for place, (token, _) in enumerate(reply.tokens or []) if token.strip() == NO_RETRIEVAL]
    end = reply.text.find(RETRIEVAL)
    for match, place in zip(re.finditer(re.escape(NO_RETRIEVAL), reply.text), positions, strict=False):
        if 0 <= end < match.start():
            break
        share = _share_of_retrieval((reply.alternatives or [])[place])
        if share is not None and share > threshold:
            end = match.start()
            break
    return (reply.text, False) if end < 0 else (reply.text[:end], True)


def _critique(reply: Completion, weights: tuple[float, float, float]) -> float:
    """The weighted sum of relevance, support and usefulness (equation 4, appendix A.3)."""
    return sum(
        weight * _expected(_group(reply, values), values)
        for weight, values in zip(weights, (RELEVANCE, SUPPORT, USEFULNESS), strict=True)
    )


def _group(reply: Completion, values: dict[str, float]) -> dict[str, float]:
    """The probabilities of a group's tokens where its first token occurs; relevance comes first in a segment."""
    tokens = [token.strip() for token, _ in reply.tokens or []]
    found = (place for place, token in enumerate(tokens) if token in values)
    place = 0 if values is RELEVANCE else next(found, None)
    alternatives = reply.alternatives or []
    if place is None or place >= len(alternatives):
        return {}
    return {token: math.exp(logprob) for token, logprob in alternatives[place].items() if token in values}


def _expected(probabilities: dict[str, float], values: dict[str, float]) -> float:
    total = sum(probabilities.values())
    return sum(values[token] * probability for token, probability in probabilities.items()) / total if total else 0.0


def _mean_probability(reply: Completion) -> float:
    """The exponential of the mean log-probability of the segment's tokens."""
    logprobs = [logprob for _, logprob in reply.tokens or []]
    return math.exp(sum(logprobs) / max(1, len(logprobs)))


def _plain(text: str) -> str:
    """A text without reflection and other special tokens."""
    return _MARKS.sub("", text).strip()


METHOD = Method(self_rag, (DECIDE, SEGMENT))
