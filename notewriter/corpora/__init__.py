"""Corpora: documents of any origin, split into the passages of a `corpus.jsonl`. One module per origin."""

from notewriter.corpora import dpr, folder, ircot, multihoprag, wiki18, wikipedia, wikipedia_html
from notewriter.corpora.source import Source

SOURCES: dict[str, Source] = {
    "folder": folder.SOURCE,
    "dpr": dpr.SOURCE,
    "wiki-18": wiki18.SOURCE,
    "wikipedia": wikipedia.SOURCE,
    "wikipedia-html": wikipedia_html.SOURCE,
    "ircot-hotpotqa": ircot.HOTPOTQA,
    "ircot-2wikimultihopqa": ircot.TWO_WIKI,
    "ircot-musique": ircot.MUSIQUE,
    "ircot-iirc": ircot.IIRC,
    "multihoprag": multihoprag.SOURCE,
}
"""Origins by their `--source` name."""
