"""The origins of documents, a file each."""

from notewriter.corpora.source import Source
from notewriter.corpora.sources import dpr, folder, ircot, multihoprag, paragraphs, wiki18, wikipedia, wikipedia_html

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
    "paragraphs": paragraphs.SOURCE,
}
"""Origins by their `--source` name."""
