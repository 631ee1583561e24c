"""The faults of a run's replies: the number of cut ones, and unknown marks at their beginning."""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from notewriter.artifacts.metrics import CutReplies
from notewriter.artifacts.traces import Generation
from notewriter.rollouts.parsing import unknown_mark

logger = logging.getLogger(__name__)

MOST_CUT = 0.05
"""The share of a stage's replies that may be cut without a warning."""

ALIKE = 0.1
"""The share of a role's replies with the same unknown mark from which a warning names it."""


@dataclass
class Replies:
    """Counts over the replies of a run.

    Args:
        cut: stage -> how many of its replies were cut.
        marks: role and mark -> how many replies began with a mark that no prompt of theirs names (`unknown_mark`).
        of_role: role -> its replies in which marks were looked for; not those that continue a text, or are raw.
    """

    cut: dict[str, CutReplies] = field(default_factory=dict)
    marks: Counter[tuple[str, str]] = field(default_factory=Counter)
    of_role: Counter[str] = field(default_factory=Counter)

    def add(self, step: Generation) -> None:
        """Count a reply."""
        completion, sampling = step.completion, step.sampling
        counts = self.cut.setdefault(step.stage, CutReplies(replies=0, cut=0, at_context_end=0))
        counts["replies"] += 1
        if completion.finish_reason == "length":
            counts["cut"] += 1
            counts["at_context_end"] += completion.completion_tokens < sampling.max_tokens
        if not sampling.raw and not sampling.continues:
            self.of_role[step.role] += 1
            if mark := unknown_mark(completion.text, "\n".join(each["content"] for each in step.messages)):
                self.marks[step.role, mark] += 1

    @property
    def unknown(self) -> dict[str, dict[str, int]]:
        """Role -> the unknown marks that a tenth of its replies begin with, and at least two -> how many."""
        found: dict[str, dict[str, int]] = {}
        for (role, mark), count in self.marks.items():
            if count > 1 and count >= ALIKE * self.of_role[role]:
                found.setdefault(role, {})[mark] = count
        return found


def count_replies(steps: Iterable[Generation]) -> Replies:
    """The counts over model calls."""
    replies = Replies()
    for step in steps:
        replies.add(step)
    return replies


def tell_of_replies(replies: Replies, place: Path) -> None:
    """Warn of stages whose replies were cut, and of replies that may think in marks that are not known."""
    many = {stage: each for stage, each in replies.cut.items() if each["cut"] > MOST_CUT * each["replies"]}
    if many:
        logger.warning(
            "%s: replies were cut and are used as they are: %s; raise their limit of tokens (--max_tokens, or "
            "max_tokens of the stage in stage_sampling)%s",
            place,
            in_words(many),
            _of_context(many),
        )
    for role, marks in replies.unknown.items():
        for mark, count in marks.items():
            logger.warning(
                "%s: %d of %d replies of %s begin with %r, which no prompt asks for; if the model thinks there, its "
                "thoughts are part of notes and answers: switch thinking off (chat_template_kwargs), or start the "
                "server with a reasoning parser",
                place,
                count,
                replies.of_role[role],
                role,
                mark,
            )


def in_words(cut: dict[str, CutReplies]) -> str:
    """The counts in words: `deepnote/answer 2 of 40, deepnote/init_note 1 of 40`, for stages with cut replies alone."""
    return ", ".join(f"{stage} {each['cut']} of {each['replies']}" for stage, each in cut.items() if each["cut"])


def _of_context(cut: dict[str, CutReplies]) -> str:
    """The remedy for replies without room in the context."""
    count = sum(each["at_context_end"] for each in cut.values())
    return (
        f"; {count} of them were cut before this limit, at the end of the model's context: give the model a longer "
        "context (max_model_len of serve_options), or shorter prompts (top_k)"
        if count
        else ""
    )
