"""The published sizes of known corpora, to notice a download that is incomplete or of another version.

DeepNote's Table 10 disagrees with IRCoT on two of the corpora that it takes from there: it has 139,416 passages for
2WikiMultihopQA and 430,139 for MuSiQue. IRCoT has 430,225 and 139,416. 2WikiMultihopQA has nearly ten times as many
questions, so DeepNote's two columns are swapped, and 430,139 looks like a mixture of the two numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

IRCOT = "the README of IRCoT's code (github.com/StonyBrookNLP/ircot)"
WIKIPEDIA_2018 = "DPR (Karpukhin et al. 2020, section 4.1) and DeepNote's Table 10"


@dataclass(frozen=True)
class Published:
    """The number of documents of a corpus, with its source.

    Counted are distinct documents before they are split, unless the count is one `with_repeats`. `folder` names the
    version that was counted, if there are many.
    """

    documents: int
    reference: str
    with_repeats: bool = False
    folder: str = ""


PUBLISHED: dict[str, Published] = {
    "dpr": Published(21_015_324, WIKIPEDIA_2018),
    "wiki-18": Published(21_015_324, WIKIPEDIA_2018),
    "ircot-hotpotqa": Published(5_233_329, IRCOT, with_repeats=True),
    "ircot-2wikimultihopqa": Published(430_225, f"{IRCOT}; DeepNote's Table 10 has MuSiQue's number here"),
    "ircot-musique": Published(139_416, f"{IRCOT}; DeepNote's Table 10 has about 2WikiMultihopQA's number here"),
    "ircot-iirc": Published(1_882_415, IRCOT, with_repeats=True),
    "wikipedia": Published(6_407_814, "the card of wikimedia/wikipedia", folder="20231101.en"),
    "multihoprag": Published(609, "Tang and Yang 2024 (MultiHop-RAG), section 3"),
}
"""By `--source` name."""


def published(source: str, paths: Iterable[Path]) -> Published | None:
    """The published size of the corpus at some paths, if it is known."""
    size = PUBLISHED.get(source)
    if size is None or (size.folder and not all(size.folder in path.resolve().parts for path in paths)):
        return None
    return size


def difference(distinct: int, repeated: int, size: Published) -> str:
    """The difference from the published size; empty if there is none.

    Args:
        distinct: the number of distinct documents.
        repeated: how many more occur again.
        known: the published size.
    """
    documents = distinct + repeated * size.with_repeats
    if documents == size.documents:
        return ""
    less = size.documents - documents
    kind = "documents" if size.with_repeats else "distinct documents"
    more = "fewer" if less > 0 else "more"
    return f"{documents:,} {kind}, {abs(less):,} {more} than the {size.documents:,} of {size.reference}"
