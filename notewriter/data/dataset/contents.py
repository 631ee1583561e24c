"""What a dataset is made of: pairs, replies from the gold evidence, or chains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from notewriter.artifacts.journal import remaining
from notewriter.artifacts.reading import pick
from notewriter.artifacts.rollouts import ChainRollout, GoldRollout, PairsRollout
from notewriter.data.dataset import chains, gold, pairs
from notewriter.data.dataset.selection import Selection, SelectionArguments
from notewriter.data.dataset.statistics import Made
from notewriter.data.options import ChainsArguments, GoldArguments, PairsArguments

Options = TypeVar("Options", bound=SelectionArguments)


@dataclass(frozen=True)
class Contents(Generic[Options]):
    """What a dataset is made of.

    Args:
        options: the dataclass of the options of the command that builds it.
        record: the type of a line of its journal.
        to_do: how many of the questions that fall to a shard are missing from its journal.
        finish: writes the dataset of a journal.
    """

    options: type[Options]
    record: type
    to_do: Callable[[Options, Selection, Path], int]
    finish: Callable[[Options, Path, Selection, dict[str, Any]], Made]

    def read_options(self, config: Mapping[str, Any]) -> Options:
        """The options in a resolved configuration; those that its version did not have are at their defaults."""
        return self.options(**pick(config, self.options))


def _missing(arguments: SelectionArguments, selection: Selection, journal: Path) -> int:
    return remaining(journal, selection.members)


PAIRS = Contents(PairsArguments, PairsRollout, pairs.to_do, pairs.finish)
GOLD = Contents(GoldArguments, GoldRollout, _missing, gold.finish)
CHAINS = Contents(ChainsArguments, ChainRollout, _missing, chains.finish)


def contents_of(config: Mapping[str, Any]) -> Contents[Any] | None:
    """What a folder contains, recognised by an option that only its command has; None for other folders."""
    # Pairs have gold_stages too.
    known: dict[str, Contents[Any]] = {"stages": PAIRS, "min_searches": CHAINS, "gold_stages": GOLD}
    return next((contents for option, contents in known.items() if option in config), None)
