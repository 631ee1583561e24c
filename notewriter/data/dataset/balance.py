"""The balance of replies at stages with two kinds of reply: as many of one as of the other.

Of the documents that a search finds most say nothing new, so that a note-taker trained on all of them learns to note
nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from notewriter.artifacts.chains import Conversation
from notewriter.artifacts.rollouts import GoldRollout
from notewriter.data.dataset.faults import without_faults

TWO_KINDS = ("document note", "status")
"""The kinds of stages whose gold replies are one of two: notes or none, better or not."""

TOO_MANY = "replies of the other kind are rarer"

Counts = dict[str, Counter[str]]
"""Stage -> kind of reply -> replies."""


def count_kinds(records: Iterable[GoldRollout], stages: Collection[str]) -> Counts:
    """The number of replies of each kind at the stages."""
    counts: Counts = {stage: Counter() for stage in stages}
    for record in records:
        for row in record["rows"]:
            if row["stage"] in counts:
                counts[row["stage"]][_kind(row)] += 1
    return counts


def balanced(records: Iterable[GoldRollout], counts: Counts) -> Iterator[GoldRollout]:
    """The records, with the surplus of the more frequent kind of reply moved to the drops, evenly over all.

    A stage with replies of one kind only keeps all of them.
    """
    seen: Counter[tuple[str, str]] = Counter()

    def fault(row: Conversation) -> str | None:
        stage, kind = row["stage"], _kind(row)
        if stage not in counts:
            return None
        total, least, place = counts[stage][kind], min(counts[stage].values()), seen[stage, kind]
        seen[stage, kind] += 1
        return None if (place + 1) * least // total > place * least // total else TOO_MANY

    return without_faults(records, fault)


def _kind(row: Conversation) -> str:
    """`YES` or `NO` of a document's notes; a status as it is."""
    return row["messages"][-1]["content"].partition("#")[0]
