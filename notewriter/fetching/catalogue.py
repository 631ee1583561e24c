"""Everything that `notewriter fetch` knows by name, collected from the modules that describe it."""

from collections.abc import Callable

from notewriter.corpora.sources import SOURCES
from notewriter.datasets import BENCHMARKS
from notewriter.ground.releases import Release
from notewriter.retrieval.published import INDEXES


def datasets() -> dict[str, Release]:
    """The benchmarks that are published somewhere."""
    return {name: each.source for name, each in BENCHMARKS.items() if each.source}


def corpora() -> dict[str, Release]:
    """The corpora that the papers searched."""
    return {name: each.files for name, each in SOURCES.items() if isinstance(each.files, Release)}


RELEASES: dict[str, Callable[[], dict[str, Release]]] = {
    "dataset": datasets,
    "corpus": corpora,
    "index": lambda: INDEXES,
}
"""The releases by kind; read on demand, since other packages add datasets."""
